"""All record types: the families' kinds by number; and what is said of a content that is wrong.

A checksum tells damage from what was written; it does not tell who wrote it. Whatever a payload
makes a decoder, or what applies it, raise is turned into an UnreplayableError here.
"""

from collections.abc import Mapping
from typing import Final

from latermq_broker.errors import UnreplayableError
from latermq_broker.store.records import (
    catalog_records,
    change_records,
    dedup_records,
    lease_records,
    letter_records,
    lite_records,
    message_records,
    own_records,
    retention_records,
    schedule_records,
    transaction_records,
)
from latermq_broker.store.records.kind import Fields, Kind, Names
from latermq_broker.store.records.record import Record, RecordType

WORDS_MAX: Final = 200  # characters of another error, which may repeat what a record says

KINDS: Final[Mapping[RecordType, Kind]] = {
    kind.number: kind
    for kind in (
        *message_records.KINDS,
        *transaction_records.KINDS,
        *lease_records.KINDS,
        *letter_records.KINDS,
        *catalog_records.KINDS,
        *change_records.KINDS,
        *lite_records.KINDS,
        *dedup_records.KINDS,
        *schedule_records.KINDS,
        *retention_records.KINDS,
        *own_records.KINDS,
    )
}

# Of them the decoder leaves a body as bytes, which is looked into where it is told or applied.
_BODIES: Final = frozenset({
    RecordType.CONFIG, RecordType.ACCESS, RecordType.LIMIT, RecordType.SCHEDULE, RecordType.DEAD,
    RecordType.MOVE,
})  # fmt: skip


def unreplayable(record: Record, error: Exception) -> UnreplayableError:
    """Make the error of a record whose content raised another one."""
    words = " ".join(f"{type(error).__name__} {error}".split())[:WORDS_MAX]
    return UnreplayableError(
        record.position,
        f"the checksum of this {record.type.name} record matches, and its content cannot be "
        f"({words.strip()}). Restore it from a backup, or see `latermq log repair --help`; nothing "
        "was changed",
    )


def check_content(record: Record) -> None:
    """Check that a payload can be decoded, whatever the state is. Raises UnreplayableError."""
    kind = KINDS[record.type]
    try:
        kind.decode(record.payload)
        if record.type in _BODIES:
            kind.text(record, Names())
    except Exception as error:
        raise unreplayable(record, error) from error


def check_read(record: Record) -> None:
    """Check that a record that an earlier life wrote is laid out as its type is.

    Raises UnreplayableError.
    """
    try:
        KINDS[record.type].decode(record.payload)
    except Exception as error:  # of any kind: see the module
        raise unreplayable(record, error) from error


def text_of(record: Record, names: Names) -> Fields:
    """Describe a record's content, as `Kind.text`. Raises UnreplayableError."""
    try:
        return KINDS[record.type].text(record, names)
    except Exception as error:
        raise unreplayable(record, error) from error
