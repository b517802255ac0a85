"""How a delivery ends: attempts, backoff, death, redrive."""
