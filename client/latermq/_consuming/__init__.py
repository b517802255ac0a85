"""From an assignment to a settled lease: what the consumers share."""
