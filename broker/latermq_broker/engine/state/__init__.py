"""Everything the engine knows: derived from the log, saved in checkpoints."""
