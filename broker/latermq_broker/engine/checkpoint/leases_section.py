"""The deliveries in a checkpoint (`delivery/section.py`), and what follows from them."""

from collections.abc import Iterable

from latermq_broker.delivery.leases.lease import IN_HAND, Delivery
from latermq_broker.delivery.section import (
    came_by_redrive,
    census,
    decode_leases,
    decode_old_leases,
    encode_leases,
    says_redriven,
)
from latermq_broker.engine.checkpoint.fifo_section import unpack_order_keys
from latermq_broker.engine.state.standing import origin_told_by_letter
from latermq_broker.engine.state.state import EngineState


def pack_leases(state: EngineState) -> bytes:
    lanes = (subscription.ready for subscription in state.subscriptions.values())
    return encode_leases(state.leases, (delivery for lane in lanes for delivery in lane))


def restore_leases(state: EngineState, section: bytes) -> None:
    """Restore leases to a state without any. Raises UnsupportedFormatError, with no change made."""
    ready = decode_leases(state.leases, section, state.clients.name)
    if not says_redriven(section):
        _guess_redriven(state)
    _take_up(state, ready)


def restore_old_leases(state: EngineState, section: bytes, order_keys: bytes) -> None:
    """Restore the leases from an older version's sections."""
    keys = unpack_order_keys(order_keys)
    ready = decode_old_leases(state.leases, section, keys, state.clients.name)
    _guess_redriven(state)
    _take_up(state, ready)


def _guess_redriven(state: EngineState) -> None:
    """Find what was redriven in a section that does not say so, as the version that wrote it did:
    a letter's record that does not stand in the queue at the delivery's offset."""
    for delivery in list(state.leases.deliveries.values()):
        queue = state.queue(delivery.topic_id, delivery.queue_id)
        offset = delivery.offset
        if queue.first <= offset < queue.next and queue.get(offset).position == delivery.position:
            continue
        redriven = origin_told_by_letter(state, delivery.position, delivery.topic_id)
        if redriven is not None and redriven[0].offset == offset:
            came_by_redrive(state.leases, delivery, *redriven)


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
