"""Invariant I9, counted anew: what needs each segment, and that everything needed is readable."""

from collections import Counter

from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.segment_use import SegmentUses


def recount(engine: Engine) -> dict[int, tuple[object, ...]]:
    """Count what `SegmentUses.facts` tells, from all that waits, is held or stands in a queue."""
    state = engine._state
    uses = SegmentUses(engine.store.log)
    for _, position in state.timer.in_order():
        uses.arm(position, state.store.log.read(position).length)
    for half in state.halves:
        assert state.read(half.position).length == half.length
        uses.arm(half.position, half.length)
    for delivery in state.leases.deliveries.values():
        assert state.read(delivery.position).length == delivery.length
        uses.hold(delivery.position)
        if delivery.first_attempt:
            uses.chain(delivery.first_attempt)
        position = delivery.last_attempt
        while position != delivery.first_attempt:
            record = state.store.log.read(position)
            assert record.type.name == "ATTEMPT"
            position = int.from_bytes(record.payload[:8], "little")
        if position:
            state.store.log.read(position)
    for key in engine.store.queue_keys():
        queue = state.queue(*key)
        for offset, entry in enumerate(queue.scan(queue.first, queue.next - queue.first)):
            assert state.read(entry.position).length == entry.length
            if entry.flags:
                uses.refer(entry.position, key, queue.first + offset)
    return uses.facts()


def recount_lossy(engine: Engine) -> dict[int, tuple[object, ...]]:
    """Count as `recount` what of a log with parts given up can be read."""
    state = engine._state
    uses = SegmentUses(engine.store.log)
    for _, position in state.timer.in_order():
        uses.arm(position, 0)
    for half in state.halves:
        uses.arm(half.position, 0)
    for delivery in state.leases.deliveries.values():
        uses.hold(delivery.position)
        if delivery.first_attempt:
            uses.chain(delivery.first_attempt)
    for key in engine.store.queue_keys():
        queue = state.queue(*key)
        for offset, entry in enumerate(queue.scan(queue.first, queue.next - queue.first)):
            if entry.flags:
                uses.refer(entry.position, key, queue.first + offset)
    for base, facts in state.uses.facts().items():  # of what waits: as many bytes as were counted
        uses.at(base).timer_bytes = int(str(facts[1]))
    return uses.facts()


def leased(engine: Engine) -> Counter[int]:
    """Count what `EngineState.leased` tells, from every delivery."""
    deliveries = engine._state.leases.deliveries.values()
    return Counter(one.group_id for one in deliveries if one.state is State.LEASED)


def check_uses(engine: Engine) -> None:
    assert engine._state.uses.facts() == recount(engine)
    assert engine._state.leased == leased(engine)
    assert engine.store.dropped.start <= engine.store.log.start
