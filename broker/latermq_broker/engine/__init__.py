"""The core's one door."""
