"""Who holds what: deliveries by the receipt handles that clients bring."""

from collections.abc import Sequence
from typing import Final

from latermq_broker.catalog.catalog import Catalog
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.lease_records import GIVEN_BACK, decode_attempt
from latermq_broker.store.records.record import RecordType

REPEATED_ATTEMPTS_MAX: Final = 64  # attempts of a message that a repeated nack is looked up in


def live_delivery(
    state: EngineState, group: str, handle: str, now_ms: int, topic: str | None = None
) -> Delivery | None:
    """Find the delivery a handle holds at `now_ms`; None: acked, expired, superseded, never ours,
    or of another topic than the one that is named."""
    (live,) = live_ids(state, group, (handle,), now_ms, topic)
    return state.leases.deliveries[live] if live else None


def live_ids(
    state: EngineState, group: str, handles: Sequence[str], now_ms: int, topic: str | None
) -> list[int]:
    """Find the id of the delivery that each handle holds; 0 for none."""
    owner = _ids_of(state.catalog, group, topic)
    if owner is None:
        return [0] * len(handles)
    named = list(map(state.handles.decode, handles))
    return state.leases.deliveries.held(named, owner, now_ms)


def was_done(state: EngineState, group: str, handle: str, now_ms: int, topic: str | None) -> bool:
    """Tell whether the handle's message is acknowledged or dead, and its lease would still last."""
    known = state.handles.decode(handle)
    owner = _ids_of(state.catalog, group, topic)
    if owner is None:
        return False
    if state.recently_done.holds(*known, owner, now_ms):
        return True
    delivery = state.leases.deliveries.get(known[0])
    return (
        delivery is not None
        and delivery.state is State.ACKED
        and delivery.generation == known[1]
        and delivery.place.is_of(owner)
        and delivery.deadline_ms > now_ms
    )


def was_given_back(
    state: EngineState, group: str, handle: str, now_ms: int, topic: str | None
) -> bool:
    """Tell whether the lease of the handle was ended by a nack or a suspension of its holder: the
    message waits or was lent again, or it was its last attempt and died of it.

    The chain of attempts in the log says so, newest first; a repeat comes soon, so the newest few.
    """
    delivery_id, generation = state.handles.decode(handle)
    owner = _ids_of(state.catalog, group, topic)
    if owner is None or not delivery_id:
        return False
    if state.recently_done.holds(delivery_id, generation, owner, now_ms):
        return True
    delivery = state.leases.deliveries.get(delivery_id)
    if delivery is None or not delivery.place.is_of(owner) or delivery.generation == generation:
        return False
    position = delivery.last_attempt
    for _ in range(REPEATED_ATTEMPTS_MAX):
        if not position:
            break
        try:
            record = state.read(position)
        except CorruptRecordError:
            return False
        if record.type is not RecordType.ATTEMPT:
            return False
        attempt = decode_attempt(record.payload)
        if attempt.outcome in GIVEN_BACK and attempt.generation == generation:
            return True
        position = attempt.previous
    return False


def _ids_of(catalog: Catalog, group: str, topic: str | None) -> tuple[int, int] | None:
    """Find the ids of both; the topic's is 0 if none is named. None: one of them does not exist."""
    owner = catalog.group(group)
    if owner is None:
        return None
    if topic is None:
        return owner.id, 0
    read = catalog.topic(topic)
    return None if read is None else (owner.id, read.id)
