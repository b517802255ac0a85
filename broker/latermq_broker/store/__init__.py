"""Files and formats: the commit log and what is derived from it."""
