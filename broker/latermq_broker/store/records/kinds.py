"""All record types: the families' kinds by number."""

from collections.abc import Mapping
from typing import Final

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
from latermq_broker.store.records.kind import Kind
from latermq_broker.store.records.record import RecordType

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
