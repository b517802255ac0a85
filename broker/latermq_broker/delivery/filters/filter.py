"""Which messages a receive wants: everything, some tags, or what a SQL92 expression lets through.

Matching tags works on the 64-bit tag hash that the consume queue keeps, so nothing is read from the
log for a message that is filtered out. SQL reads the message's properties, see
`engine/receive/entry_filter.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import xxhash

from latermq_broker.delivery.filters.sql_filter import SqlFilter


def hash64(text: str) -> int:
    """Hash a tag, key or message id to 64 bits; 0 only for the empty string."""
    return (xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) or 1) if text else 0


def hashes64(texts: Sequence[bytes]) -> list[int]:
    """Hash many texts that are encoded already, as `hash64` does."""
    return [(xxhash.xxh3_64_intdigest(text) or 1) if text else 0 for text in texts]


@dataclass(frozen=True, slots=True)
class TagFilter:
    """tags None: everything, untagged messages too; else an exact match against one of them."""

    tags: frozenset[str] | None = None

    def hashes(self) -> frozenset[int] | None:
        """Hash the wanted tags; None when everything matches."""
        return None if self.tags is None else frozenset(map(hash64, self.tags))


MessageFilter = TagFilter | SqlFilter

EVERYTHING: Final = TagFilter()
