"""Work that lasts, and how the event loop's time is divided among it and everything else."""
