"""What waits, and behind what."""
