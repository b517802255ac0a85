"""Text that both sides write alike."""
