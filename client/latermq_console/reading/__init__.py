"""What is asked of the broker, and kept for a while: calls, samples, letters, jobs."""
