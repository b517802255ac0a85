"""Who holds which message until when, and what happens when the hold ends."""
