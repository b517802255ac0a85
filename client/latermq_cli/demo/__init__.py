"""The life of a few messages, shown."""
