"""gRPC over the streams of an HTTP/2 connection: heads, messages, status, deadlines, handlers."""
