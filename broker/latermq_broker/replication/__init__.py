"""A shard's log that several machines keep; imported only where `[replication]` is set."""
