"""The records of the log: header and payloads, as bytes and as values."""
