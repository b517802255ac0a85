"""What may be configured, and how far each number may go."""
