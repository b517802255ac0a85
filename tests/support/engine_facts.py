"""What a recovery must bring back, of an engine: for comparisons (I8, I11)."""

import struct
from array import array
from copy import deepcopy

from latermq_broker.engine.catalog.group_progress import GroupProgress
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.lag import Lag, lag_of
from latermq_broker.engine.state.model import DeadFilter, DeadLetter, PendingFilter
from support.index_contents import indexed
from support.recount import leased


def facts(engine: Engine) -> dict[str, object]:
    """Everything that is derived from the log, as it is now."""
    state = engine._state
    assert state.leased == leased(engine)
    return {
        "deliveries": {id: one.key() for id, one in state.leases.deliveries.items()},
        "timer": sorted(state.timer.in_order()),
        "catalog": state.catalog.snapshot(),
        "users": state.users.snapshot(),
        "limits": state.limits.snapshot(),
        "schedules": state.schedules.snapshot(),
        "declarations": state.declarations.snapshot(),
        "dead": {id: dict(letters.items()) for id, letters in state.dead.items() if letters},
        "done": done_handles(state.recently_done.snapshot()),
        "moved": state.timers_moved.snapshot(),
        "over": state.timers_moved.snapshot_over(),
        "delayed": dict(state.delayed_counts),
        "halves": [half.key() for half in state.halves],
        "ended": list(state.halves.ended.items()),
        "readers": set(state.subscriptions),
        "counts": {
            key: dict(one.counts)
            for key, one in state.subscriptions.items()
            if any(one.counts.values())
        },
        "cursors": {
            key: dict(sorted(one.cursors.items()))
            for key, one in state.subscriptions.items()
            if one.cursors
        },
        "ahead": {
            key: {queue_id: list(spans) for queue_id, spans in sorted(one.ahead.items())}
            for key, one in state.subscriptions.items()
            if one.ahead
        },
        "wanted": {key: one.wanted for key, one in state.subscriptions.items() if one.wanted},
        "lags": lags(engine),
        "queues": {topic.name: engine.topics.ends(topic) for topic in state.catalog.topics()},
        "gates": gates(engine),
        "parking": dict(state.parking),
        "lites": {id: parent.facts() for id, parent in state.lites.items()},
        "uses": state.uses.facts(),
        "index": indexed(engine),
        "clock": state.wall.steps(),
        "start": engine.store.log.start,
    }


def lags(engine: Engine) -> dict[tuple[int, int], tuple[Lag, int]]:
    """Return how far each group is behind, and since when its oldest message waits."""
    catalog = engine._state.catalog
    found: dict[tuple[int, int], tuple[Lag, int]] = {}
    for (group_id, topic_id), subscription in engine._state.subscriptions.items():
        topic, group = catalog.topic_by_id(topic_id), catalog.group_by_id(group_id)
        if topic is None or group is None:
            continue
        since_ms = 0
        if catalog.group(group.name) is group and catalog.topic(topic.name) is topic:
            progress = GroupProgress(engine._state)  # tests of repairs replace the state
            since_ms = progress.oldest_ready_ms(group.name, topic.name)
        found[group_id, topic_id] = lag_of(engine._state, subscription, topic), since_ms
    return found


def done_handles(section: bytes) -> list[tuple[int, ...]]:
    """List what is over of a checkpoint's section `done`, handle by handle.

    Which of them ended together is told by how leases were laid out, which a start does anew.
    """
    _, rows = struct.unpack_from("<II", section)
    at = 8
    columns: list[array[int]] = []
    for code in "QIIII":
        column = array(code)
        column.frombytes(section[at : at + rows * column.itemsize])
        at += rows * column.itemsize
        columns.append(column)
    ids = array("Q")
    ids.frombytes(section[at:])
    each = iter(ids)
    handles = [
        (next(each), *row) for *row, count in zip(*columns, strict=True) for _ in range(count)
    ]
    assert len(handles) == len(ids)
    return handles


def gates(engine: Engine) -> dict[tuple[int, int], dict[int, tuple[object, ...]]]:
    """What blocks message groups and waits behind, by group and topic."""
    found = {}
    for key, subscription in engine._state.subscriptions.items():
        gate = subscription.gate
        if gate is not None and gate.groups:
            assert gate.held_count == sum(len(group.held) for group in gate.groups.values())
            assert gate.behind_count == sum(
                len(group.live) - group.busy + len(group.held)
                for group in gate.groups.values()
                if group.busy or group.parked
            )
            found[key] = deepcopy(gate.facts())
    return found


def newest_letter(engine: Engine, group: str, message_id: str) -> DeadLetter:
    """Find the newest dead letter with that message id, in any state."""
    filter = DeadFilter(message_ids=frozenset({message_id}), state=None)
    [letter] = engine.dead.scan(group, filter, count_max=1, newest_first=True).letters
    return letter


def waits_of(engine: Engine, message_id: str) -> list[str]:
    """Find the ids under which a message waits."""
    walk = engine.pending.walk(PendingFilter())
    return engine.pending.search(message_id, walk, 1_000)
