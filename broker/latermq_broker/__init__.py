"""The LaterMQ broker: one process, one commit log, the RocketMQ 5 gRPC protocol."""

__version__ = "0.1.0"
