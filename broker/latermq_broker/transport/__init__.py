"""What carries the services: today grpc.aio."""
