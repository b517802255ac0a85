"""The set-up of this process's log, put back: a broker that a test runs here replaces it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def log_as_it_was() -> Iterator[None]:
    """Put handlers and levels back at the end."""
    root, own = logging.getLogger(), logging.getLogger("latermq")
    handlers, levels = list(root.handlers), (root.level, own.level)
    raises = logging.raiseExceptions
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.raiseExceptions = raises
