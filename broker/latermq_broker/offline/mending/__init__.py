"""What `latermq log repair` does after the bytes: one lenient replay, and a log that tells it."""
