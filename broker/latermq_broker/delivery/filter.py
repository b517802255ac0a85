"""Which messages a receive wants, by tag.

Matching works on the 64-bit tag hash that the consume queue keeps, so nothing is read from the log
for a message that is filtered out.
"""

from dataclasses import dataclass
from typing import Final

import xxhash


def hash64(text: str) -> int:
    """64-bit hash of a tag, key or message id; 0 only for the empty string."""
    return (xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) or 1) if text else 0


@dataclass(frozen=True, slots=True)
class TagFilter:
    """tags None: everything, untagged messages too; else an exact match against one of them."""

    tags: frozenset[str] | None = None

    def hashes(self) -> frozenset[int] | None:
        """The wanted tag hashes; None when everything matches."""
        return None if self.tags is None else frozenset(map(hash64, self.tags))


EVERYTHING: Final = TagFilter()
