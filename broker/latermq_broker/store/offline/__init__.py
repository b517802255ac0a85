"""Checks and mending of a directory that no broker runs on."""
