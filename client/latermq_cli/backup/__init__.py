"""`latermq backup`: copies of a broker's log, kept in a directory or a bucket."""
