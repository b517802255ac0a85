"""For all models: the message index in small blocks, so that a short life has many."""

from collections.abc import Iterator

import pytest

from latermq_broker.store import message_index

BLOCK_ENTRIES = 64


@pytest.fixture(autouse=True, scope="session")
def small_index_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_index, "BLOCK_ENTRIES", BLOCK_ENTRIES)
        yield
