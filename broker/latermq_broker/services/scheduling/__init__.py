"""Schedules between wire and core: when they tick, and what they send."""
