"""One RPC family per module: protobuf in, core calls, protobuf out."""
