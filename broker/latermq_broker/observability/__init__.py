"""What operators read: logs."""
