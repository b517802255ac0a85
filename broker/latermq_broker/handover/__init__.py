"""`serve --replace`: both halves of handing the sockets over."""
