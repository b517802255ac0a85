"""Sockets, TLS and the event loop around the connections, and nothing else."""
