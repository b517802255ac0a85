"""Who comes next: lanes, message groups, lite topics."""
