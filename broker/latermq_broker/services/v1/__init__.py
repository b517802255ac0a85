"""The services of latermq.v1, for operators."""
