"""Which messages a receive wants: everything, some tags, or what a SQL92 expression lets through.

Matching tags works on the 64-bit tag hash that the consume queue keeps, so nothing is read from the
log for a message that is filtered out. SQL reads the message's properties, see
`engine/receive/entry_filter.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import xxhash

from latermq_broker.delivery.filters.sql_filter import SqlFilter, sql_filter


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
_SQL: Final = "sql:"
_TAGS: Final = "tags:"


def filter_text(filter: MessageFilter) -> str:
    """Write a filter down, alike for equal ones; "" for one that wants everything."""
    if isinstance(filter, SqlFilter):
        return _SQL + filter.expression
    return "" if filter.tags is None else _TAGS + "||".join(sorted(filter.tags))


def filter_of(text: str) -> MessageFilter:
    """Read what `filter_text` wrote. Raises IllegalFilterError: SQL that this version refuses."""
    if text.startswith(_SQL):
        return sql_filter(text[len(_SQL) :])
    return TagFilter(frozenset(text[len(_TAGS) :].split("||"))) if text else EVERYTHING
