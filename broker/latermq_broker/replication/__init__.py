"""A shard's log in an engine that keeps it on several machines; imported only where one is set."""
