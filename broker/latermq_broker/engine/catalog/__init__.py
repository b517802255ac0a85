"""Topics, groups, lite topics, users and limits, made and changed."""
