"""Values as people read and see them: words, times, bodies, charts. Pure."""
