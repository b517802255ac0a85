"""The state as checkpoint sections, and back.

catalog        JSON (store/catalog.py)
subscriptions  JSON [[group, topic, {queue: next offset}, last consumed ms], …]
deliveries     fixed structs, below; READY ones in the order of their lane
timer          u64 pairs (due, position)
uses           JSON [[segment base, timers, their bytes, [[topic, queue, entries, from, to], …]], …]
dead           JSON {topic id: {offset: [state, since ms]}}
counters       JSON {"next_delivery_id": …, "delayed": {topic id: count}}
clients        JSON [[client id, position of its CLIENT record], …]
halves         fixed structs, below: half messages that are pending, the oldest first
ended          fixed structs, below: the last transactions that ended, in that order
order_keys     u64 pairs (delivery id, order key) of those that have one
fifo           what is held back and what is parked, per message group: `engine/fifo_section.py`
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from latermq_broker.delivery.fifo import FifoGate
from latermq_broker.delivery.lease import Delivery, State
from latermq_broker.delivery.transaction import HalfMessage, HalfState
from latermq_broker.engine.apply_deliveries import DeliveryApplier
from latermq_broker.engine.fifo_section import (
    pack_fifo,
    pack_order_keys,
    restore_fifo,
    unpack_order_keys,
)
from latermq_broker.engine.model import DeadState
from latermq_broker.engine.state import EngineState
from latermq_broker.schedule.run_file import DamagedRunError, RunFile

#  0   8         16      24        32           40         48      56
#  | id| position| offset| tag_hash| deadline_ms| leased_ms| client| last_attempt|
#  64             72      76      80      84          88        90       92     93          94
#  | first_attempt| group | topic | length| generation| queue_id| attempt| state| auto_renew|
#  94        95  96
#  | renewals| pad
_DELIVERY: Final = struct.Struct("<QQqQQQQQQIIIIHHBBBx")
assert _DELIVERY.size == 96
_RENEWALS_MAX: Final = 255
#  half    0      8         16         24      32       40      44     48      50   56
#          | first| position| stored_ms| due_ms| id_hash| topic| length| checks| pad|
_HALF: Final = struct.Struct("<QQQQQIIH6x")
assert _HALF.size == 56
#  ended   0      8        16     17   24
#          | first| id_hash| state| pad|
_ENDED: Final = struct.Struct("<QQB7x")
assert _ENDED.size == 24
# What a replay that begins behind dropped segments finds out by itself.
TOLD_BY_THE_LOG: Final = ("timer.near", "timer.far", "timer.tombstones", "runs", "uses")


def snapshot(state: EngineState, new_run: str = "") -> dict[str, bytes]:
    """`new_run` is the run file that is written together with this checkpoint, if one is."""
    subscriptions = [
        [key[0], key[1], subscription.cursors, subscription.last_consumed_ms]
        for key, subscription in sorted(state.subscriptions.items())
    ]
    return {
        "catalog": state.catalog.snapshot(),
        "subscriptions": _json(subscriptions),
        "deliveries": b"".join(_encode(delivery) for delivery in _in_lane_order(state)),
        **state.timer.snapshot(),
        "runs": _json([run.name for run in state.timer.far.runs] + [new_run] * bool(new_run)),
        "uses": state.uses.snapshot(),
        "dead": _json(state.dead),
        "counters": _json(
            {"next_delivery_id": state.leases.next_id, "delayed": state.delayed_counts}
        ),
        "clients": _json(list(state.client_positions.items())),
        "halves": b"".join(map(_encode_half, state.halves)),
        "ended": b"".join(
            _ENDED.pack(first, id_hash, end) for first, (end, id_hash) in state.halves.ended.items()
        ),
        "order_keys": pack_order_keys(state),
        "fifo": pack_fifo(state),
    }


def restore(state: EngineState, deliveries: DeliveryApplier, sections: Mapping[str, bytes]) -> None:
    """Into a fresh state, or one to which replay has told what TOLD_BY_THE_LOG names.

    Raises DamagedRunError, before anything has changed.
    """
    whole = "uses" in sections
    runs = _open_runs(state, json.loads(sections["runs"])) if whole else []
    state.store.named_runs = frozenset(run.name for run in runs)
    state.catalog.restore(sections["catalog"])
    for group_id, topic_id, cursors, last_consumed_ms in json.loads(sections["subscriptions"]):
        subscription = state.subscription(group_id, topic_id)
        subscription.cursors = {int(queue_id): offset for queue_id, offset in cursors.items()}
        subscription.last_consumed_ms = last_consumed_ms
    for client_id, position in json.loads(sections["clients"]):
        state.client_positions[client_id] = position
        state.client_names[position] = client_id
    order_keys = unpack_order_keys(sections.get("order_keys", b""))
    for fields in _DELIVERY.iter_unpack(sections["deliveries"]):
        deliveries.restore_delivery(_decode(state, fields, order_keys.get(fields[0], 0)))
    restore_fifo(state, sections.get("fifo", b""))
    if whole:
        state.timer.restore(sections, runs)
        state.uses.restore(sections["uses"])
    for dlq_topic_id, letters in json.loads(sections["dead"]).items():
        state.dead[int(dlq_topic_id)] = {
            int(offset): (DeadState(changed), since_ms)
            for offset, (changed, since_ms) in letters.items()
        }
    for half in _HALF.iter_unpack(sections.get("halves", b"")):
        _restore_half(state, half)
    for first, id_hash, end in _ENDED.iter_unpack(sections.get("ended", b"")):
        state.halves.remember(first, HalfState(end), id_hash)
    counters = json.loads(sections["counters"])
    state.leases.next_id = counters["next_delivery_id"]
    state.delayed_counts = {int(topic): count for topic, count in counters["delayed"].items()}


def _open_runs(state: EngineState, names: list[str]) -> list[RunFile]:
    runs: list[RunFile] = []
    try:
        for name in names:
            runs.append(RunFile.open(state.store.files, state.store.runs_directory, name))
    except DamagedRunError:
        for run in runs:
            run.close()
        raise
    return runs


def _in_lane_order(state: EngineState) -> Iterator[Delivery]:
    deliveries = state.leases.deliveries
    for delivery in deliveries.values():
        if delivery.state is not State.READY:
            yield delivery
    for subscription in state.subscriptions.values():
        if subscription.gate is not None:
            yield from _ready_in_order(state, subscription.gate)
        for delivery_id, generation in subscription.ready:
            ready = deliveries.get(delivery_id)
            if ready is not None and ready.generation == generation:
                yield ready


def _ready_in_order(state: EngineState, gate: FifoGate) -> Iterator[Delivery]:
    for group in gate.groups.values():
        for _, delivery_id in group.live:
            delivery = state.leases.deliveries[delivery_id]
            if delivery.state is State.READY:
                yield delivery


def _encode(delivery: Delivery) -> bytes:
    return _DELIVERY.pack(
        delivery.id,
        delivery.position,
        delivery.offset,
        delivery.tag_hash,
        delivery.deadline_ms,
        delivery.leased_ms,
        delivery.client,
        delivery.last_attempt,
        delivery.first_attempt,
        delivery.group_id,
        delivery.topic_id,
        delivery.length,
        delivery.generation,
        delivery.queue_id,
        delivery.attempt,
        delivery.state,
        delivery.auto_renew,
        min(delivery.renewals, _RENEWALS_MAX),
    )


def _decode(state: EngineState, fields: tuple[int, ...], order_key: int) -> Delivery:
    delivery = Delivery(
        id=fields[0],
        group_id=fields[9],
        topic_id=fields[10],
        queue_id=fields[13],
        offset=fields[2],
        position=fields[1],
        length=fields[11],
        tag_hash=fields[3],
        order_key=order_key,
    )
    delivery.deadline_ms = fields[4]
    delivery.leased_ms = fields[5]
    delivery.client = fields[6]
    delivery.last_attempt = fields[7]
    delivery.first_attempt = fields[8]
    delivery.generation = fields[12]
    delivery.attempt = fields[14]
    delivery.state = State(fields[15])
    delivery.auto_renew = bool(fields[16])
    delivery.renewals = fields[17]
    delivery.client_id = state.client_name(delivery.client) if delivery.client else ""
    return delivery


def _encode_half(half: HalfMessage) -> bytes:
    return _HALF.pack(
        half.first,
        half.position,
        half.stored_ms,
        half.due_ms,
        half.id_hash,
        half.topic_id,
        half.length,
        half.checks,
    )


def _restore_half(state: EngineState, fields: tuple[int, ...]) -> None:
    first, position, stored_ms, due_ms, id_hash, topic_id, length, checks = fields
    half = HalfMessage(
        first=first,
        position=position,
        length=length,
        topic_id=topic_id,
        id_hash=id_hash,
        stored_ms=stored_ms,
        due_ms=due_ms,
        checks=checks,
    )
    state.halves.add(half)
    if state.catalog.topic_by_id(topic_id) is None:
        state.halves.deadlines.arm(first, 0)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
