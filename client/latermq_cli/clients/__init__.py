"""`latermq client` and `latermq top`: who is there, and what goes on."""
