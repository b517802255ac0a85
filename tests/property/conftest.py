"""For all models: the message index in small blocks, so that a short life has many."""

from collections.abc import Iterator

import pytest

from latermq_broker.store.derived import message_index
from support.native import small_limits

BLOCK_ENTRIES = 64


@pytest.fixture(autouse=True, scope="module")  # no longer: others may run behind it
def small_index_blocks() -> Iterator[None]:
    with small_limits() as assign:
        assign(message_index, "BLOCK_ENTRIES", BLOCK_ENTRIES)
        yield
