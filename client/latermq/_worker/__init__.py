"""What a worker is made of: payloads, calls of listeners, signals."""
