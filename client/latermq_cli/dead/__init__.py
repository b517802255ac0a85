"""Dead letters: list, show, redrive, drop."""
