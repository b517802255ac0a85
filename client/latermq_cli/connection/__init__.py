"""The way to a broker: endpoints, credentials, TLS."""
