"""Who takes part in a replicated log, as brokers tell each other: a hint, the log is the truth."""
