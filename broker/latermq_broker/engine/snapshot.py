"""The state as checkpoint sections, and back.

catalog        JSON (store/catalog.py)
subscriptions  JSON [[group, topic, {queue: next offset}, last consumed ms], …]
deliveries     fixed structs, below; READY ones in the order of their lane
timer          u64 pairs (due, position)
dead           JSON {topic id: {offset: [state, since ms]}}
counters       JSON {"next_delivery_id": …, "delayed": {topic id: count}}
clients        JSON [[client id, position of its CLIENT record], …]
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from latermq_broker.delivery.lease import Delivery, State
from latermq_broker.engine.apply_deliveries import DeliveryApplier
from latermq_broker.engine.model import DeadState
from latermq_broker.engine.state import EngineState
from latermq_broker.schedule.run_file import DamagedRunError, RunFile

#  0   8         16      24        32           40         48      56
#  | id| position| offset| tag_hash| deadline_ms| leased_ms| client| last_attempt|
#  64       68       72      76          80        82       84     85          86        87  88
#  | group | topic | length| generation| queue_id| attempt| state| auto_renew| renewals| pad
_DELIVERY: Final = struct.Struct("<QQqQQQQQIIIIHHBBBx")
assert _DELIVERY.size == 88
_RENEWALS_MAX: Final = 255


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
        "dead": _json(state.dead),
        "counters": _json(
            {"next_delivery_id": state.leases.next_id, "delayed": state.delayed_counts}
        ),
        "clients": _json(list(state.client_positions.items())),
    }


def restore(state: EngineState, deliveries: DeliveryApplier, sections: Mapping[str, bytes]) -> None:
    """Into a fresh state.

    Raises DamagedRunError, before anything has changed.
    """
    runs = _open_runs(state, json.loads(sections["runs"]))
    state.store.named_runs = frozenset(run.name for run in runs)
    state.catalog.restore(sections["catalog"])
    for group_id, topic_id, cursors, last_consumed_ms in json.loads(sections["subscriptions"]):
        subscription = state.subscription(group_id, topic_id)
        subscription.cursors = {int(queue_id): offset for queue_id, offset in cursors.items()}
        subscription.last_consumed_ms = last_consumed_ms
    for client_id, position in json.loads(sections["clients"]):
        state.client_positions[client_id] = position
        state.client_names[position] = client_id
    for fields in _DELIVERY.iter_unpack(sections["deliveries"]):
        deliveries.restore_delivery(_decode(state, fields))
    state.timer.restore(sections, runs)
    for dlq_topic_id, letters in json.loads(sections["dead"]).items():
        state.dead[int(dlq_topic_id)] = {
            int(offset): (DeadState(changed), since_ms)
            for offset, (changed, since_ms) in letters.items()
        }
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
        for delivery_id, generation in subscription.ready:
            ready = deliveries.get(delivery_id)
            if ready is not None and ready.generation == generation:
                yield ready


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


def _decode(state: EngineState, fields: tuple[int, ...]) -> Delivery:
    delivery = Delivery(
        id=fields[0],
        group_id=fields[8],
        topic_id=fields[9],
        queue_id=fields[12],
        offset=fields[2],
        position=fields[1],
        length=fields[10],
        tag_hash=fields[3],
    )
    delivery.deadline_ms = fields[4]
    delivery.leased_ms = fields[5]
    delivery.client = fields[6]
    delivery.last_attempt = fields[7]
    delivery.generation = fields[11]
    delivery.attempt = fields[13]
    delivery.state = State(fields[14])
    delivery.auto_renew = bool(fields[15])
    delivery.renewals = fields[16]
    delivery.client_id = state.client_name(delivery.client) if delivery.client else ""
    return delivery


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
