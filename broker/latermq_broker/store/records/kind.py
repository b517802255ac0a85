"""What a record type is on disk."""

from collections.abc import Callable
from typing import Any, NamedTuple

from latermq_broker.store.records.record import RecordType

Bytes = bytes | memoryview


class Kind(NamedTuple):
    """One record type. What its payload does to the state stands in `engine/journal/apply_*`."""

    number: RecordType
    encode: Callable[[Any], list[Bytes]]
    decode: Callable[[Any], Any]
