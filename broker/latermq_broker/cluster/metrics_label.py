"""Metrics of several shards in one Prometheus: every sample says of which shard it is. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?", re.MULTILINE)


def labelled(pieces: Iterable[str], shard: int) -> Iterator[str]:
    """Yield a page in the text format with the label `shard` in every sample.

    Args:
        pieces: of whole lines.
    """

    def with_label(match: re.Match[str]) -> str:
        return f'{match[1]}{{shard="{shard}"{"," if match[2] else "}"}'

    for piece in pieces:
        yield _SAMPLE.sub(with_label, piece)
