"""The log and the state, changed together."""
