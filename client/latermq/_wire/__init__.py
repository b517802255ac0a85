"""Protobuf on one side, values of this package on the other: the only translator."""
