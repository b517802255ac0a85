"""The pump: ticks, writes, syncs and checkpoints on the event loop and its threads."""
