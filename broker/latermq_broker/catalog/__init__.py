"""What exists: topics, groups, users and their limits, as values."""
