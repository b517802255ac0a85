"""What carries the services: our own HTTP/2 on sockets (lean), or grpc.aio."""
