"""Connections to brokers, and what keeps a client known to them."""
