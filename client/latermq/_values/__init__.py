"""What a client is told and says, as values: no I/O, no protobuf."""
