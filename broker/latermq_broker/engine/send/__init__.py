"""Messages come in, at once, later or in two phases."""
