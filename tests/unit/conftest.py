"""For tests in one process: what a broker or a command sets up for its own is put back."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Put back handlers and levels: a broker or `latermq serve` that runs here replaces them."""
    root, own = logging.getLogger(), logging.getLogger("latermq")
    handlers, levels = list(root.handlers), (root.level, own.level)
    raises = logging.raiseExceptions
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.raiseExceptions = raises
