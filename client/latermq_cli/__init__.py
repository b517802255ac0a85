"""The `latermq` command: every word that asks a broker."""
