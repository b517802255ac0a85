"""Messages go out: what a receive gives, lane by lane."""
