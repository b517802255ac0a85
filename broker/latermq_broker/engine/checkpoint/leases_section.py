"""The deliveries in a checkpoint (`delivery/section.py`), and what follows from them."""

from collections.abc import Iterable

from latermq_broker.delivery.leases.lease import IN_HAND, Delivery
from latermq_broker.delivery.section import (
    census,
    decode_leases,
    decode_old_leases,
    encode_leases,
)
from latermq_broker.engine.checkpoint.fifo_section import unpack_order_keys
from latermq_broker.engine.state.state import EngineState


def pack_leases(state: EngineState) -> bytes:
    lanes = (subscription.ready for subscription in state.subscriptions.values())
    return encode_leases(state.leases, (delivery for lane in lanes for delivery in lane))


def restore_leases(state: EngineState, section: bytes) -> None:
    """Restore leases to a state without any. Raises UnsupportedFormatError, with no change made."""
    _take_up(state, decode_leases(state.leases, section, state.clients.name))


def restore_old_leases(state: EngineState, section: bytes, order_keys: bytes) -> None:
    """Restore the leases from an older version's sections."""
    keys = unpack_order_keys(order_keys)
    _take_up(state, decode_old_leases(state.leases, section, keys, state.clients.name))


def _take_up(state: EngineState, ready: Iterable[Delivery]) -> None:
    """Count the deliveries, hold their segments, form message groups, and lanes of `ready`."""
    all_told = census(state.leases)
    for (place, delivery_state), count in all_told.counts.items():
        subscription = state.subscription(place.group_id, place.topic_id)
        subscription.count(delivery_state, count)
    if all_told.positions:
        state.uses.hold_all(all_told.positions)
    for first_attempt in all_told.first_attempts:
        state.uses.chain(first_attempt)
    for delivery in all_told.ordered:
        gate = state.subscription(delivery.group_id, delivery.topic_id).ordered()
        gate.enter(delivery.order_key, delivery.offset, delivery.id)
        if delivery.state in IN_HAND:
            gate.seize(delivery.order_key)
    for delivery in ready:
        state.subscription(delivery.group_id, delivery.topic_id).ready.append(delivery)
