"""Commands that open a data directory themselves."""
