"""Protobuf to core and back: the only translator."""
