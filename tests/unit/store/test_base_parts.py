"""What a BASE is put together from, where parts of it may be lost."""

from latermq_broker.store.records.retention_records import (
    BaseParts,
    DropPayload,
    base_records,
)


def base(start: int, sections: bytes) -> list[DropPayload]:
    return list(base_records(start, sections, part_bytes_max=2))


def test_parts_in_a_row_are_a_base() -> None:
    parts = BaseParts()
    assert [parts.add(drop) for drop in base(64, b"abcdef")] == [None, None, b"abcdef"]


def test_parts_of_two_bases_are_none() -> None:
    """The end of the first and the beginning of the second are lost."""
    parts = BaseParts()
    first, second = base(64, b"abcd"), base(128, b"efgh")
    assert parts.add(first[0]) is None
    assert parts.add(second[1]) is None


def test_a_part_that_is_lost_ends_it() -> None:
    parts = BaseParts()
    begun, _, last = base(64, b"abcdef")
    assert [parts.add(begun), parts.add(last)] == [None, None]
    assert [parts.add(drop) for drop in base(128, b"ghij")] == [None, b"ghij"]
