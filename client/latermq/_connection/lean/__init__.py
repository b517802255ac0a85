"""gRPC over our own HTTP/2: calls and their answers, one connection, and the transport of both."""
