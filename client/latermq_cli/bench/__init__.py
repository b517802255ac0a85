"""Measure a broker under load."""
