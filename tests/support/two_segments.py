"""The first entries of a replicated log, of which two segments come."""

from typing import Final

from latermq_broker.replication.batch import Batch, cluster_hash, fence_of
from latermq_broker.store.log.segment import SegmentHeader, encode_segment_header

SIZE: Final = 8_192
SHOP: Final = cluster_hash("shop")


def two_segments() -> list[Batch]:
    """Make a fence, a segment that begins and is full, and one that begins behind it."""
    fence = fence_of(SHOP, 3, 1, 77)
    headers = [encode_segment_header(SegmentHeader(base, SIZE, b"u" * 16, 5)) for base in (0, SIZE)]
    return [
        fence,
        fence._replace(sequence=1, data=headers[0] + b"one", segment=SIZE, fence=False),
        fence._replace(sequence=2, position=67, data=b"two", fence=False),
        fence._replace(sequence=3, position=SIZE, data=headers[1], segment=SIZE, fence=False),
    ]
