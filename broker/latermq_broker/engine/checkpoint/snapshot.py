"""The state as checkpoint sections, and back.

catalog        JSON (catalog/catalog.py)
subscriptions  JSON [[group, topic, {queue: next offset}, last consumed ms], …]
leases         the deliveries, see `delivery/section.py`
deliveries     the same as older versions wrote it, see there: only read
timer          u64 pairs (due, position)
uses           JSON [[segment base, timers, their bytes, [[topic, queue, entries, from, to], …]], …]
letters        which dead letters were redriven or dropped: `engine/state/letter_states.py`
dead           the same as older versions wrote it, JSON {topic id: {offset: [state, since ms]}}:
               only read
counters       JSON {"next_delivery_id": …, "delayed": {topic id: count}, "stride": …}
clients        JSON [[client id, position of its CLIENT record], …]
halves         fixed structs, below: half messages that are pending, the oldest first
half_senders   JSON {transaction: access key} of those that users sent; empty without
ended          fixed structs, below: the last transactions that ended, in that order
order_keys     u64 pairs (delivery id, order key) of those in `deliveries` that have one: only read
users          JSON, as `catalog/access.py` writes them, secrets included; empty without users
limits         a line of JSON (catalog/limits.py) for each; empty without limits
schedules      a line of JSON (catalog/schedules.py) for each; empty without schedules
declarations   JSON {schedule: {app: since ms}} (catalog/declarations.py); empty without any
fifo           what is held back and what is parked, per message group: `fifo_section.py`
done           handles of what is over while their leases would last: `recently_done.py`
timers_moved   whose time an operator moved, and until when they wait: `timers_moved.py`
timers_over    the last of them that wait no more: see there
lites          lite topics, and how far groups are on them: `lite_section.py`
clock          JSON: steps of the wall clock (`engine/state/wall_clock.py`); empty without any
lives          JSON [[from ms, its stride], …]: lives of the broker (`engine/state/lives.py`)
dedup          ids that senders gave their messages: `dedup_ids.py`
rewinds        where groups were moved back to (`rewinds.py`), JSON [[group, topic, [[queue, lite
               key, offset, next delivery id], …]], …]; empty without
ahead, wanted  of groups whose consumers filter differently: `ahead_section.py`
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from latermq_broker.delivery.halves import HalfMessage, HalfState
from latermq_broker.engine.checkpoint.ahead_section import (
    pack_ahead,
    pack_wanted,
    restore_ahead,
    restore_wanted,
)
from latermq_broker.engine.checkpoint.fifo_section import pack_fifo, restore_fifo
from latermq_broker.engine.checkpoint.leases_section import (
    pack_leases,
    restore_leases,
    restore_old_leases,
)
from latermq_broker.engine.checkpoint.lite_section import pack_lites, restore_lites
from latermq_broker.engine.state.letter_states import LetterStates, pack_letters, unpack_letters
from latermq_broker.engine.state.model import DeadState
from latermq_broker.engine.state.rewinds import Move
from latermq_broker.engine.state.state import EngineState
from latermq_broker.schedule.run_file import RunFile

#  half    0      8         16         24      32       40      44     48      50   56
#          | first| position| stored_ms| due_ms| id_hash| topic| length| checks| pad|
_HALF: Final = struct.Struct("<QQQQQIIH6x")
assert _HALF.size == 56
#  ended   0      8        16     17   24
#          | first| id_hash| state| pad|
_ENDED: Final = struct.Struct("<QQB7x")
assert _ENDED.size == 24
# What a replay that begins behind dropped segments finds out by itself.
TOLD_BY_THE_LOG: Final = (
    "timer.near",
    "timer.coming",
    "timer.coming_tombstones",
    "timer.far",
    "timer.tombstones",
    "runs",
    "uses",
)


def snapshot(state: EngineState, new_run: str = "") -> dict[str, bytes]:
    """Encode the state; `new_run`: the run file that is written with this checkpoint, if any."""
    subscriptions = [
        [key[0], key[1], subscription.cursors, subscription.last_consumed_ms]
        for key, subscription in sorted(state.subscriptions.items())
    ]
    return {
        "catalog": state.catalog.snapshot(),
        "users": state.users.snapshot(),
        "limits": state.limits.snapshot(),
        "schedules": state.schedules.snapshot(),
        "declarations": state.declarations.snapshot(),
        "subscriptions": _json(subscriptions),
        "leases": pack_leases(state),
        **state.timer.snapshot(),
        "runs": _json([run.name for run in state.timer.far.runs] + [new_run] * bool(new_run)),
        "uses": state.uses.snapshot(),
        "letters": pack_letters(state.dead),
        "counters": _json(
            {
                "next_delivery_id": state.leases.next_id,
                "delayed": state.delayed_counts,
                "stride": state.leases.stride,
            }
        ),
        "clients": _json(state.clients.snapshot()),
        "halves": b"".join(map(_encode_half, state.halves)),
        "half_senders": _pack_senders(state),
        "ended": b"".join(
            _ENDED.pack(first, id_hash, end) for first, (end, id_hash) in state.halves.ended.items()
        ),
        "fifo": pack_fifo(state),
        "done": state.recently_done.snapshot(),
        "timers_moved": state.timers_moved.snapshot(),
        "timers_over": state.timers_moved.snapshot_over(),
        "lites": pack_lites(state),
        "dedup": state.dedup.snapshot(),
        "rewinds": _pack_rewinds(state),
        "ahead": pack_ahead(state),
        "wanted": pack_wanted(state),
        "clock": _json(steps) if (steps := state.wall.steps()) else b"",
        "lives": _json(state.lives.snapshot()),
    }


def restore(state: EngineState, sections: Mapping[str, bytes]) -> None:
    """Restore a fresh state, or one to which replay has told what TOLD_BY_THE_LOG names.

    Raises DamagedRunError, UnsupportedFormatError, before anything has changed.
    """
    whole = is_whole(sections)
    runs = _open_runs(state, json.loads(sections["runs"])) if whole else []
    state.store.named_runs = frozenset(run.name for run in runs)
    state.catalog.restore(sections["catalog"])
    state.users.restore(sections.get("users", b""))
    state.limits.restore(sections.get("limits", b""))
    state.schedules.restore(sections.get("schedules", b""))
    state.declarations.restore(sections.get("declarations", b""))
    for group_id, topic_id, cursors, last_consumed_ms in json.loads(sections["subscriptions"]):
        subscription = state.subscription(group_id, topic_id)
        subscription.cursors = {int(queue_id): offset for queue_id, offset in cursors.items()}
        subscription.last_consumed_ms = last_consumed_ms
    for group_id, topic_id, moves in json.loads(sections.get("rewinds") or b"[]"):
        state.subscription(group_id, topic_id).rewinds.load(Move(*move) for move in moves)
    restore_ahead(state, sections.get("ahead", b""))
    restore_wanted(state, sections.get("wanted", b""))
    state.clients.restore(dict(json.loads(sections["clients"])))  # pairs are lists here
    if "leases" in sections:
        restore_leases(state, sections["leases"])
    else:
        restore_old_leases(state, sections["deliveries"], sections.get("order_keys", b""))
    restore_fifo(state, sections.get("fifo", b""))
    restore_lites(state, sections.get("lites", b""))
    state.recently_done.restore(sections.get("done", b""))
    state.timers_moved.restore(sections.get("timers_moved", b""))
    state.timers_moved.restore_over(sections.get("timers_over", b""))
    state.dedup.restore(sections.get("dedup", b""))
    state.wall.restore(json.loads(sections.get("clock") or b"[]"))
    state.lives.restore(json.loads(sections.get("lives", b"[]")))
    if whole:
        state.timer.restore(sections, runs)
        state.uses.restore(sections["uses"])
    state.dead = unpack_letters(sections.get("letters", b""))
    for dlq_topic_id, letters in json.loads(sections.get("dead", b"{}")).items():
        states = state.dead[int(dlq_topic_id)] = LetterStates()
        for offset, (changed, since_ms) in letters.items():
            states.put(int(offset), DeadState(changed), since_ms)
    for half in _HALF.iter_unpack(sections.get("halves", b"")):
        _restore_half(state, half)
    for first, sender in json.loads(sections.get("half_senders") or b"{}").items():
        half_message = state.halves.get(int(first))
        assert half_message is not None
        state.halves.sent_by(half_message, sender)
    for first, id_hash, end in _ENDED.iter_unpack(sections.get("ended", b"")):
        state.halves.remember(first, HalfState(end), id_hash)
    counters = json.loads(sections["counters"])
    state.leases.next_id = _number(counters["next_delivery_id"], 1 << 63)
    state.leases.stride = _number(counters.get("stride", 1), 1 << 32)
    state.delayed_counts = {
        int(topic): _number(count, 1 << 62) for topic, count in counters["delayed"].items()
    }


def restore_told(state: EngineState, sections: Mapping[str, bytes]) -> None:
    """Have what TOLD_BY_THE_LOG names as a whole BASE has it, in place of what replay told."""
    state.uses.restore(sections["uses"])
    state.timer.restore(sections, [])
    for due_ms, position in list(state.timer.in_order()):
        if state.is_gone(position):
            state.timer.cancel(due_ms, position)


def is_whole(sections: Mapping[str, bytes]) -> bool:
    """Tell whether nothing of the state is left for the log to tell, but queue entries."""
    return "uses" in sections


def _open_runs(state: EngineState, names: list[str]) -> list[RunFile]:
    runs: list[RunFile] = []
    try:
        for name in names:
            runs.append(RunFile.open(state.store.files, state.store.runs_directory, name))
    except BaseException:
        for run in runs:
            run.close()
        raise
    return runs


def _number(value: Any, end: int) -> int:
    """Return a whole number below `end`. Raises ValueError: it is none."""
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"{value!r} is no number from 0 to {end - 1}")
    return value


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


def _pack_senders(state: EngineState) -> bytes:
    senders = {half.first: half.sender for half in state.halves if half.sender}
    return _json(senders) if senders else b""


def _pack_rewinds(state: EngineState) -> bytes:
    moves = [
        (*key, rewinds)
        for key, subscription in sorted(state.subscriptions.items())
        if (rewinds := list(subscription.rewinds))
    ]
    return _json(moves) if moves else b""


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
