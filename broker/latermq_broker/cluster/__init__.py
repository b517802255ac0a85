"""Several brokers behind one route, a shard each; imported only where there are several."""
