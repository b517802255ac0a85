"""Who holds what: deliveries by the receipt handles that clients bring."""

from collections.abc import Sequence

from latermq_broker.catalog.catalog import Catalog
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.engine.state.state import EngineState


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


def _ids_of(catalog: Catalog, group: str, topic: str | None) -> tuple[int, int] | None:
    """Find the ids of both; the topic's is 0 if none is named. None: one of them does not exist."""
    owner = catalog.group(group)
    if owner is None:
        return None
    if topic is None:
        return owner.id, 0
    read = catalog.topic(topic)
    return None if read is None else (owner.id, read.id)
