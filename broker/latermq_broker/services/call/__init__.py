"""What every call has: its contract, its answers, names and pages."""
