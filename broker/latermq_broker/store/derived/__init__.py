"""What can be made anew from the log: queues, the index, checkpoints."""
