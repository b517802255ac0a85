"""What a terminal shows: tables, times, errors, exit codes."""
