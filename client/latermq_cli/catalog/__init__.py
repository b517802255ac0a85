"""Topics, groups, limits and users."""
