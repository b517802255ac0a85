"""The state as sections of bytes, and back."""
