"""Everything that must hold after a recovery, asked of an engine and its directory.

`audit` looks without touching: I1, I2, I6, I7, I9. `drain` receives all there is, as time goes by:
I3, I4, I5, the order of message groups and the rest of I1; it leaves an empty broker behind.
`locked` tries a second broker: I12. I8 and I11 are compared by whoever starts on copies, I10 is
told by the recovery's report. All violations go into the ledger.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

import pytest

from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    DeadFilter,
    PendingFilter,
    PendingKind,
    ReceiveRequest,
    TagFilter,
)
from latermq_broker.errors import StoreLockedError
from latermq_broker.store.files import Files
from latermq_broker.store.store import Store
from support.engine_rig import do_due
from support.ledger import Delivery, Ledger
from support.ledger_sends import Outcome
from support.recount import check_uses
from support.sim_desk import GROUPS, TOPIC, UNWANTED_MS, kind_of, lite_keys, name_of, reads

ALL: int = 100_000
ALWAYS: int = 1 << 62
DRAIN_STEPS_MAX: int = 5_000
BLOCKED_MS_MAX: int = 2_000 + UNWANTED_MS  # behind what its message group has before it


def audit(engine: Engine, ledger: Ledger, now_ms: int) -> frozenset[str]:
    """Held against the ledger without a call that changes anything; who may have expired."""
    check_uses(engine)
    ledger.check_topics(topic.name for topic in engine.catalog.topics())
    topic = engine.catalog.topic(TOPIC)
    ledger.found_topic(topic.epoch if topic is not None else "")
    for group in GROUPS:
        owner = engine.catalog.group(group)
        ledger.found_group(group, kind_of(owner))
        if owner is not None:
            ledger.check_policy(group, owner.max_attempts)
    if topic is None:
        for message_id in ledger.stored(ALWAYS):
            ledger.violated(1, f"{message_id}: lost, with its topic")
        return frozenset()
    found: Counter[str] = Counter()
    halves = _waiting(engine, PendingKind.HALF)
    _check_halves(ledger, {message_id for message_id, _ in halves})
    for message_id, body in (
        _queued(engine, ledger) + _waiting(engine, PendingKind.DELAYED) + halves
    ):
        found[message_id] += 1
        message = ledger.messages.get(message_id)
        if message is None or md5(body).digest() != message.body_md5:
            ledger.violated(1, f"{message_id}: nobody sent it like this")
    expired = _expired(ledger, now_ms)
    _check_sends(ledger, found, expired)
    return expired


def _expired(ledger: Ledger, now_ms: int) -> frozenset[str]:
    """What retention may have taken by then."""
    return frozenset(
        message_id
        for message_id, message in ledger.messages.items()
        if ledger.retention_ms
        and now_ms - max(message.sent_ms, message.due_ms) >= ledger.retention_ms
    )


def _queued(engine: Engine, ledger: Ledger) -> list[tuple[str, bytes]]:
    """Message ids and bodies in the queues of the topic; their order and offsets are checked."""
    found: list[tuple[str, bytes]] = []
    topic = engine.catalog.topic(TOPIC)
    assert topic is not None
    if topic.queue_count < ledger.queues:
        ledger.violated(1, f"{topic.queue_count} queues, {ledger.queues} were told")
    for ends in engine.topics.ends(topic):
        first, count = ends.earliest_offset, ends.next_offset - ends.earliest_offset
        rows = engine.queues.read(
            TOPIC, "", ends.queue_id, first, ends.next_offset, rows_max=ALL, bytes_max=1 << 40
        )
        if [row.queue_offset for row in rows] != list(range(first, first + count)):
            ledger.violated(
                6, f"queue {ends.queue_id} has holes between {first} and {first + count}"
            )
        entries = engine.store.queue(topic.id, ends.queue_id).scan(first, count)
        times = [entry.time_ms for entry in entries]
        own = [entry.position for entry in entries if not entry.flags]
        if times != sorted(times):
            ledger.violated(6, f"queue {ends.queue_id}: {times} is not the order of time")
        if len(own) != len(set(own)):
            ledger.violated(1, f"queue {ends.queue_id}: a message is there twice")
        names = [name_of(row.sys) for row in rows]
        sent = [int(name[1:]) for name in names if ledger.enters_at_once(name)]
        if sent != sorted(sent):
            ledger.violated(6, f"queue {ends.queue_id}: {sent} is not the order of the sends")
        found += zip(names, (row.rest for row in rows), strict=True)
    return found


def _waiting(engine: Engine, kind: PendingKind) -> list[tuple[str, bytes]]:
    wanted = PendingFilter(kind=kind, topic=TOPIC)
    items, _ = engine.pending.page(wanted, ALL, scan_max=ALL)
    return [(name_of(item.sys), item.rest) for item in items]


def _check_halves(ledger: Ledger, pending: set[str]) -> None:
    """I7: what is open is open, what has ended is not."""
    for message_id, message in ledger.messages.items():
        never_ended = message.commit is None and message.rollback is None
        is_open = message.half and never_ended and message.outcome is Outcome.DONE
        is_open = is_open and not message.deleted
        if message_id in pending and not message.half:
            ledger.violated(7, f"{message_id}: open, and it never was a half message")
        elif message_id in pending and Outcome.DONE in (message.commit, message.rollback):
            ledger.violated(7, f"{message_id}: its transaction ended, yet it is open")
        elif is_open and message_id not in pending:
            ledger.violated(7, f"{message_id}: nobody ended its transaction, yet it is gone")


def _check_sends(ledger: Ledger, found: Counter[str], expired: frozenset[str]) -> None:
    batches: defaultdict[int, set[bool]] = defaultdict(set)
    for message_id, message in ledger.messages.items():
        count = found[message_id]
        if count > 1:
            ledger.violated(1, f"{message_id}: there {count} times")
        elif count and message.outcome is Outcome.REFUSED:
            ledger.violated(2, f"{message_id}: its send was refused, yet it is there")
        elif count and message.cancel is Outcome.DONE:
            ledger.violated(3, f"{message_id}: cancelled, yet it is there")
        elif count and message.deleted is Outcome.DONE:
            ledger.violated(2, f"{message_id}: its topic was deleted, yet it is there")
        known = [ledger.progress.get((group, message_id)) for group in GROUPS]
        may_go = message_id in expired or (
            bool(ledger.retention_ms) and any(one and (one.attempt or one.ack) for one in known)
        )
        ended = message.cancel or message.rollback or message.deleted
        if ended is None and not may_go:
            batches[message.batch].add(bool(count))
            if not count and message.outcome is Outcome.DONE:
                ledger.violated(1, f"{message_id}: lost")
    for batch, seen in batches.items():
        if len(seen) > 1:
            ledger.violated(2, f"batch {batch} is there in part")


def drain(engine: Engine, ledger: Ledger, now_ms: int, gone: frozenset[str]) -> int:
    """Receive and acknowledge everything, now and as it becomes due; how many there were.

    First with the filters that the groups had last, and then without: what is not wanted is to keep
    nothing from coming, and to come when it is wanted.
    """
    if engine.catalog.topic(TOPIC) is None:
        return 0
    do_due(engine, now_ms)
    steps = Steps(now_ms)
    count = sum(_drain_once(engine, ledger, group, steps) for group in GROUPS)
    for client in ("c1", "c2"):  # until now they held what is renewed for them
        engine.client_gone(client, now_ms)
    ledger.left()
    late = _expired(ledger, now_ms + BLOCKED_MS_MAX)
    gone_unseen = {
        group: gone if kind_of(engine.catalog.group(group)) == "plain" else late for group in GROUPS
    }
    if any(ledger.filters.values()):
        count += _drain_all(engine, ledger, steps)
        look = ledger.clone()
        _check_drained(engine, look, steps.now_ms, gone_unseen)
        ledger.violations[:] = look.violations
        ledger.filters.clear()
    count += _drain_all(engine, ledger, steps)
    _check_drained(engine, ledger, steps.now_ms, gone_unseen)
    return count


def _check_drained(
    engine: Engine, ledger: Ledger, now_ms: int, gone: dict[str, frozenset[str]]
) -> None:
    """`gone`: by group, what retention may have taken."""
    for group in GROUPS:
        if engine.catalog.group(group) is None:
            continue
        for letter in engine.dead.scan(group, DeadFilter(), count_max=ALL, scan_max=ALL).letters:
            ledger.died(group, name_of(letter.sys), letter.rest)
        if reads(engine, group):
            ledger.check_drained(group, now_ms, gone[group])
        else:
            ledger.check_redriven(group)


@dataclass
class Steps:
    """Of a drain: when it is, and how many replies there were."""

    now_ms: int
    count: int = 0


def _drain_all(engine: Engine, ledger: Ledger, steps: Steps) -> int:
    """Until nothing comes, and nothing is due; how many there were."""
    found, waited = 0, False
    while steps.count < DRAIN_STEPS_MAX:
        delivered = sum(_drain_once(engine, ledger, group, steps) for group in GROUPS)
        found += delivered
        waited = waited and not delivered
        if not delivered:
            due_ms = _next_due_ms(engine, steps.now_ms)
            if due_ms is None and waited:
                return found
            waited = due_ms is None
            steps.now_ms = due_ms or steps.now_ms + UNWANTED_MS
        do_due(engine, steps.now_ms)
    ledger.violated(1, f"after {DRAIN_STEPS_MAX} receives it is not empty")
    return found


def _drain_once(engine: Engine, ledger: Ledger, group: str, steps: Steps) -> int:
    """One reply, acknowledged; what is behind a message group may come next."""
    if not reads(engine, group):
        return 0
    keys, now_ms = lite_keys(engine, group), steps.now_ms
    tags = None if keys else ledger.filters.get(group)
    request = ReceiveRequest(
        group=group,
        topic=TOPIC,
        client_id="drain",
        count_max=32,
        invisible_ms=60_000,
        filter=TagFilter(tags),
        lite_keys=keys,
    )
    steps.count += 1
    ledger.receiving(group, tags, now_ms)
    delivered = engine.receive(request, now_ms)
    for one in delivered:
        name = name_of(one.sys)
        times = (now_ms, now_ms, now_ms, 60_000)
        number = -steps.count if engine.catalog.require_group(group).fifo else 0
        ledger.delivered(group, Delivery(name, one.rest, one.attempt, one.handle, *times, number))
    for one in delivered:
        name = name_of(one.sys)
        ledger.acking(group, name)
        if engine.ack(group, [one.handle], now_ms) != [None]:
            ledger.violated(3, f"{name}: the handle of a live lease was refused")
        ledger.acked(group, name, one.handle, accepted=True, at_ms=now_ms)
    return len(delivered)


def _next_due_ms(engine: Engine, now_ms: int) -> int | None:
    """When the next of what waits for a time is due; open transactions wait for their end."""
    times = []
    for kind in (PendingKind.DELAYED, PendingKind.BACKOFF, PendingKind.IN_FLIGHT):
        count = ALL if kind is PendingKind.BACKOFF else 1  # of these some may wait to be received
        items, _ = engine.pending.page(PendingFilter(kind=kind), count)
        times += [item.due_ms for item in items if item.due_ms > now_ms]
    return min(times, default=None)


def locked(directory: Path, config: StoreConfig, files: Files, now_ms: int) -> None:
    """I12: a second broker on the same directory refuses."""
    with pytest.raises(StoreLockedError):
        Store.open(directory, config, files, now_ms)
