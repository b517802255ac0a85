"""The latermq command."""
