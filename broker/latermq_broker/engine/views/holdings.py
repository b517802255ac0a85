"""What clients have in their hands. Read only, but for letting it go.

A look goes through all deliveries, some thousand at a time, so that whoever asks can let others
have their turn in between.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from latermq_broker.catalog.catalog import Group, Topic
from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.delivery.leases.shared import DeliveryKey, Holder
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState
from latermq_broker.store.records.lease_records import EXTEND_KEEP_HANDLE, ExtendPayload
from latermq_broker.store.records.record import RecordType

ROWS_AT_ONCE: Final = 20_000  # some 2 ms
RELEASED_LEASE_MS: Final = 1_000  # as of a client that is gone


class Held(NamedTuple):
    """Tells what is held of one topic for one group."""

    group: str
    topic: str
    messages: int
    oldest_leased_ms: int
    first_due_ms: int


class Holdings:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal

    def counts(self) -> Iterator[Counter[str]]:
        """Count by client id, slice by slice."""
        for holders in self._state.leases.deliveries.holders_in_slices(ROWS_AT_ONCE):
            counts: Counter[str] = Counter()
            for holder, count in holders.items():
                counts[self._name(holder)] += count
            yield counts

    def holders(self, group: Group | None, topic: Topic | None) -> Iterator[set[str]]:
        """Name the clients that hold something of those, of whichever where None, slice by slice;
        one client may be in several of them."""

        def wanted(place: DeliveryKey) -> bool:
            return (group is None or place.group_id == group.id) and (
                topic is None or place.topic_id == topic.id
            )

        for holders in self._state.leases.deliveries.holders_at(ROWS_AT_ONCE, wanted):
            yield {self._name(holder) for holder in holders}

    def of(self, client_id: str) -> Iterator[list[Held]]:
        """Tell what one client has, slice by slice; `together` puts them together."""
        catalog = self._state.catalog
        for deliveries in self._deliveries(client_id):
            held: list[Held] = []
            for delivery in deliveries:
                group = catalog.group_by_id(delivery.group_id)
                topic = catalog.topic_by_id(delivery.topic_id)
                if group is not None and topic is not None:
                    due_ms = self._state.wall.at(delivery.deadline_ms)
                    leased_ms = self._state.wall.time_of_day(delivery.leased_ms)
                    held.append(Held(group.name, topic.name, 1, leased_ms, due_ms))
            yield together(held)

    def release(self, client_id: str, now_ms: int) -> Iterator[int]:
        """Let what it has be receivable after a second, slice by slice; yield how many."""
        for deliveries in self._deliveries(client_id):
            for delivery in deliveries:
                if delivery.deadline_ms > now_ms + RELEASED_LEASE_MS:
                    payload = ExtendPayload(delivery.id, RELEASED_LEASE_MS, EXTEND_KEEP_HANDLE)
                    self._journal.write(RecordType.EXTEND, payload, now_ms)
            yield len(deliveries)

    def _deliveries(self, client_id: str) -> Iterator[list[Delivery]]:
        return self._state.leases.deliveries.of_holders(
            ROWS_AT_ONCE, lambda holder: self._name(holder) == client_id
        )

    def _name(self, holder: Holder) -> str:
        return holder.client_id or self._state.clients.name(holder.client)


def together(held: list[Held]) -> list[Held]:
    """Sum up, by group and topic in their order."""
    sums: dict[tuple[str, str], Held] = {}
    for each in held:
        key = each.group, each.topic
        known = sums.get(key)
        sums[key] = (
            each
            if known is None
            else Held(
                *key,
                known.messages + each.messages,
                min(known.oldest_leased_ms, each.oldest_leased_ms),
                min(known.first_due_ms, each.first_due_ms),
            )
        )
    return [sums[key] for key in sorted(sums)]
