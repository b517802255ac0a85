"""How pages are served: sessions, forms, headers, templates."""
