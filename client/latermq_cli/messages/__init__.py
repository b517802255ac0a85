"""send, receive, ack, nack and message."""
