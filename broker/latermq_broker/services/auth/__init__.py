"""Who may do what: signatures, rights, the guard before every call."""
