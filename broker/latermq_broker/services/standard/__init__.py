"""gRPC's own services: health and reflection."""
