"""Attacks on a console process: a signed-in person works beside them."""
