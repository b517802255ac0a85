"""The commit log: segments in a row, written and read."""
