"""What is shown of the state: pending, lives, searches, figures."""
