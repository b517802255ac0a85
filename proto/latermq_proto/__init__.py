"""Generated RocketMQ 5 and LaterMQ protobuf stubs in a private descriptor pool."""
