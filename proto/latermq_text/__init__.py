"""What both sides say alike: text, and the figures of several shards as one."""
