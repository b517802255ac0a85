"""gRPC over HTTP/2, without a loop."""
