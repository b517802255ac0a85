"""The whole engine against dicts and lists, with crashes, restarts and time in any order.

After every step the log is written, as the pump does before it answers. Held after each: what is
receivable is what the model says, attempt counts are exact, nothing is early, acknowledged messages
do not come back, each death is in the dead letters once. The segments' counters are a recount, and
everything needed is readable. After each recovery, with checkpoints or from the log alone, the
state is the one that was there before; the wall clock may have been set forward or back by an hour.
What time does to the log is in `test_retention_model`; half messages (I7) and message groups have
models of their own. Of docs/reliability.md's invariants this asserts I1 to I6 in its rules, I8 in
`open`, I9 in `written`, I11 and I12 in `restart`; losses of power (I10) are `support/simulation`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.config import CatalogConfig, Config, DeliveryConfig, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import (
    DeadFilter,
    DeadState,
    Failure,
    Outgoing,
    PendingFilter,
    PendingKind,
    ReceiveRequest,
    TagFilter,
)
from latermq_broker.errors import StoreFullError
from latermq_broker.schedule.run_merge import merge_runs
from latermq_broker.store.inspect import verify_directory
from latermq_broker.store.limits import Limit, Scope
from latermq_broker.store.store import Store
from support.audit import locked
from support.index_contents import indexed
from support.memory_files import MemoryFiles
from support.recount import check_uses

pytestmark = pytest.mark.usefixtures("small_runs")

ATTEMPTS_MAX = 3
LEASE_MS = 1_000
HOUR_MS = 3_600_000
RETRY_LOG_BYTES_MAX = 192
CONFIG = Config(
    store=StoreConfig(segment_bytes=512 << 10, message_body_bytes_max=4 << 10),
    delivery=DeliveryConfig(max_attempts=ATTEMPTS_MAX),
    catalog=CatalogConfig(default_queue_count=2),
)
GROUPS = {"everything": None, "only-a": frozenset({"a"})}
TOPIC = "orders"
DIRECTORY = Path("/data")


@dataclass
class Held:
    """What the model knows of one message in one group."""

    state: str = "fresh"  # fresh | leased | backoff | ready | done | dead
    attempt: int = 0
    handle: str = ""
    deadline_ms: int = 0
    dead_ms: int = 0


def facts(engine: Engine) -> dict[str, object]:
    """What recovery must bring back."""
    state = engine._state
    return {
        "deliveries": {id: one.key() for id, one in state.leases.deliveries.items()},
        "timer": sorted(state.timer.in_order()),
        "catalog": state.catalog.snapshot(),
        "users": state.users.snapshot(),
        "limits": state.limits.snapshot(),
        "dead": {id: letters for id, letters in state.dead.items() if letters},
        "delayed": state.delayed_counts,
        "halves": [half.key() for half in state.halves],
        "ended": list(state.halves.ended.items()),
        "counts": {
            key: one.counts for key, one in state.subscriptions.items() if any(one.counts.values())
        },
        "queues": {topic.name: engine.topics.ends(topic) for topic in state.catalog.topics()},
        "uses": state.uses.facts(),
        "index": indexed(engine),
        "start": engine.store.log.start,
    }


def set_limit(engine: Engine, most: int, now_ms: int) -> None:
    """0: no longer."""
    if most:
        engine.limits.set(Limit(scope=Scope.GROUP, name="*", parked_polls=most), now_ms)
    elif engine.limits.table.get(Scope.GROUP, "*") is not None:
        engine.limits.unset(Scope.GROUP, "*", now_ms)


class EngineMachine(RuleBasedStateMachine):
    CONFIG = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.after_tick: Callable[[Engine], None] = lambda engine: None
        self.now_ms = 1_700_000_000_000
        self.wall_ahead_ms = 0
        self.tags: dict[str, str] = {}  # message id → tag
        self.due_ms: dict[str, int] = {}  # by the wall clock
        self.fired: set[str] = set()  # due once; what the clock does later does not matter
        self.seen_ms: dict[str, int] = {}  # when it entered its queue, at the earliest
        self.cancelled: set[str] = set()
        self.pending_ids: dict[str, str] = {}
        self.held: dict[tuple[str, str], Held] = {}
        self.engine = self.open()
        for group in GROUPS:
            self.engine.ensure_group(group, self.now_ms)
        self.engine.ensure_topic(TOPIC, self.now_ms)
        self.engine.write()

    def teardown(self) -> None:
        self.engine.abandon()
        assert self.files.open_count == 0

    def open(self, before: dict[str, object] | None = None, jump_ms: int = 0) -> Engine:
        """A start, whose first look at the wall clock may see it set back."""
        wall_ms = self.now_ms + min(jump_ms, 0)
        store = Store.open(DIRECTORY, self.CONFIG.store, self.files, wall_ms)
        engine = Engine.open(store, self.CONFIG, wall_ms)
        engine.client_gone("client", self.now_ms)  # nobody renews in this model
        engine.retention.step_cost = 0
        engine.wall.ahead_ms = self.wall_ahead_ms
        self.tick(engine)
        assert before in (None, facts(engine))
        engine.retention.step_cost = 3_000  # a pass takes many ticks
        return engine

    def tick(self, engine: Engine) -> None:
        wall_ms = self.now_ms + self.wall_ahead_ms
        for name, due_ms in self.due_ms.items():
            if due_ms <= wall_ms and name not in self.fired and name not in self.cancelled:
                self.fired.add(name)
                self.seen_ms[name] = self.now_ms
        while (deadline_ms := engine.tick(self.now_ms)) is not None:
            if deadline_ms > self.now_ms:
                break
        engine.write()
        self.after_tick(engine)

    def in_state(self, *states: str) -> list[tuple[str, str]]:
        return sorted(key for key, held in self.held.items() if held.state in states)

    # --- what clients do -----------------------------------------------------------------------

    @rule(
        tags=st.lists(st.sampled_from("ab"), min_size=1, max_size=3),
        wait_ms=st.one_of(st.integers(-5, 3_000), st.integers(0, 400_000)),
    )
    def send(self, tags: list[str], wait_ms: int) -> None:
        names = [f"m{len(self.tags) + index}" for index in range(len(tags))]
        due_ms = self.engine.wall.at(self.now_ms) + wait_ms if wait_ms > 0 else 0
        outgoing = [
            Outgoing(
                topic=TOPIC,
                rest=name.encode() * 20,
                sys=name.encode(),
                message_id=name,
                tag=tag,
                deliver_at_ms=due_ms,
            )
            for name, tag in zip(names, tags, strict=True)
        ]
        if self.engine.store.disk.full:
            before = self.engine.store.log.end
            with pytest.raises(StoreFullError, match="disk full: need"):
                self.engine.send(outgoing, self.now_ms)
            assert self.engine.store.log.end == before
            return
        for name, tag, sent in zip(
            names, tags, self.engine.send(outgoing, self.now_ms), strict=True
        ):
            self.seen_ms[name] = self.now_ms + max(wait_ms, 0)
            if wait_ms <= 0:
                self.fired.add(name)
            self.tags[name] = tag
            self.due_ms[name] = due_ms
            self.pending_ids[name] = sent.pending_id
            assert bool(sent.pending_id) == (wait_ms > 0)
            for group in GROUPS:
                self.held[group, name] = Held()

    @rule(group=st.sampled_from(sorted(GROUPS)), count=st.integers(1, 5), renew=st.booleans())
    def receive(self, group: str, count: int, renew: bool) -> None:
        eligible = receivable(self, group)
        request = ReceiveRequest(
            group=group,
            topic=TOPIC,
            client_id="client",
            count_max=count,
            invisible_ms=LEASE_MS,
            auto_renew=renew,
            filter=TagFilter(GROUPS[group]),
        )
        delivered = self.engine.receive(request, self.now_ms)
        if renew:
            self.engine.client_gone("client", self.now_ms)
        assert len(delivered) == min(count, len(eligible))
        for one in delivered:
            name = one.sys.decode()
            held = eligible.pop(name)  # KeyError: it was not receivable, or came twice
            assert one.rest == name.encode() * 20
            assert one.attempt == held.attempt + 1
            held.state, held.attempt, held.handle = "leased", one.attempt, one.handle
            held.deadline_ms = self.now_ms + LEASE_MS

    @precondition(lambda self: self.in_state("leased", "backoff"))
    @rule(draw=st.data())
    def ack(self, draw: st.DataObject) -> None:
        group, name = draw.draw(st.sampled_from(self.in_state("leased", "backoff")))
        held = self.held[group, name]
        other = next(other for other in GROUPS if other != group)
        assert self.engine.ack(other, [held.handle], self.now_ms) != [None]
        assert self.engine.ack(group, [held.handle, held.handle], self.now_ms) == [None, None]
        assert self.engine.ack(group, [held.handle], self.now_ms) == [None]
        held.state = "done"

    @precondition(lambda self: self.in_state("leased", "backoff"))
    @rule(
        draw=st.data(),
        wait_ms=st.integers(1, 2_500),
        kind=st.sampled_from(["extend", "nack", "suspend"]),
    )
    def change_invisible(self, draw: st.DataObject, wait_ms: int, kind: str) -> None:
        group, name = draw.draw(st.sampled_from(self.in_state("leased", "backoff")))
        held = self.held[group, name]
        old = held.handle
        before = self.engine.store.log.end
        lease = self.engine._state.live_delivery(group, old, self.now_ms)
        assert lease is not None
        counted = kind == "nack" or (kind == "extend" and lease.auto_renew)
        held.handle = self.engine.change_invisible(
            group,
            old,
            wait_ms,
            self.now_ms,
            suspend=kind == "suspend",
            failure=Failure("ValueError", "bad", "", "") if kind == "nack" else None,
        )
        held.deadline_ms = self.now_ms + wait_ms
        if held.state == "leased" and counted and held.attempt == ATTEMPTS_MAX:
            held.state, held.dead_ms = "dead", self.now_ms
            return
        if self.engine.store.log.segments[-1].base < before:
            assert self.engine.store.log.end - before <= RETRY_LOG_BYTES_MAX
        assert self.engine.ack(group, [old], self.now_ms) != [None]
        if held.state == "leased" and (counted or kind == "suspend"):
            held.state = "backoff"
            held.attempt -= kind == "suspend"

    @precondition(lambda self: self.in_state("leased", "backoff"))
    @rule(draw=st.data(), rejected=st.booleans())
    def forward(self, draw: st.DataObject, rejected: bool) -> None:
        group, name = draw.draw(st.sampled_from(self.in_state("leased", "backoff")))
        held = self.held[group, name]
        for _ in range(2):  # clients repeat it
            failure = Failure("Bad", "no", "", "", rejected)
            self.engine.forward(group, held.handle, self.now_ms, failure)
        held.state, held.dead_ms = "dead", self.now_ms
        letter = self.engine.dead.get(group, message_id=name)
        assert letter.reason == ("rejected" if rejected else "forwarded")
        assert letter.attempt_count == held.attempt

    # --- what operators do ---------------------------------------------------------------------

    @precondition(lambda self: self.in_state("dead"))
    @rule(draw=st.data(), drop=st.booleans())
    def empty_dead_letters(self, draw: st.DataObject, drop: bool) -> None:
        group, name = draw.draw(st.sampled_from(self.in_state("dead")))
        letter = self.engine.dead.get(group, message_id=name)
        assert letter.state is DeadState.DEAD
        if drop:
            self.engine.dead.drop(group, [letter.queue_offset], self.now_ms)
            self.held[group, name].state = "done"
        else:
            self.engine.dead.redrive(group, letter.queue_offset, "", self.now_ms)
            self.held[group, name] = Held("ready")

    @precondition(lambda self: bool(waiting(self)))
    @rule(draw=st.data(), kind=st.sampled_from(["cancel", "expedite", "postpone"]))
    def change_delayed(self, draw: st.DataObject, kind: str) -> None:
        name = draw.draw(st.sampled_from(waiting(self)))
        if kind == "cancel":
            self.engine.pending.cancel(self.pending_ids[name], self.now_ms)
            self.cancelled.add(name)
            return
        new_ms = self.engine.wall.at(self.now_ms) + (5_000 if kind == "postpone" else 0)
        if kind == "postpone":
            self.engine.pending.postpone(name, new_ms, self.now_ms)
        else:
            self.engine.pending.expedite(name, self.now_ms)
        self.due_ms[name] = new_ms
        if kind == "postpone":
            items, _ = self.engine.pending.page(PendingFilter(kind=PendingKind.DELAYED), 1_000)
            self.pending_ids[name] = next(i.pending_id for i in items if i.sys.decode() == name)
        self.tick(self.engine)

    @precondition(lambda self: self.in_state("backoff", "ready"))
    @rule(draw=st.data(), cancel=st.booleans())
    def change_retry(self, draw: st.DataObject, cancel: bool) -> None:
        group, name = draw.draw(st.sampled_from(self.in_state("backoff", "ready")))
        retries = PendingFilter(kind=PendingKind.BACKOFF, group=group)
        items, _ = self.engine.pending.page(retries, 1_000)
        [pending_id] = [item.pending_id for item in items if item.sys.decode() == name]
        if cancel:
            self.engine.pending.cancel(pending_id, self.now_ms)
            self.held[group, name].state = "done"
        else:
            self.engine.pending.expedite(pending_id, self.now_ms)
            self.held[group, name].state = "ready"
            self.tick(self.engine)

    # --- what happens to brokers ---------------------------------------------------------------

    @rule(step_ms=st.one_of(st.integers(0, 2_000), st.integers(0, 90_000)))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms
        for held in self.held.values():
            if held.deadline_ms <= self.now_ms and held.state in ("leased", "backoff"):
                exhausted = held.state == "leased" and held.attempt == ATTEMPTS_MAX
                held.state = "dead" if exhausted else "ready"
                held.dead_ms = self.now_ms
        self.tick(self.engine)

    @rule(ahead_ms=st.sampled_from([0, 1_000, -1_000, 3_600_000, -3_600_000]))
    def wall_clock_jumps(self, ahead_ms: int) -> None:
        """Nothing that lasts a while ends earlier or later by it."""
        self.wall_ahead_ms = self.engine.wall.ahead_ms = ahead_ms
        self.tick(self.engine)

    @rule(most=st.integers(0, 3), before=st.booleans())
    def checkpoint(self, most: int, before: bool) -> None:
        """A limit is set or unset before it or after it, too."""
        if before:
            set_limit(self.engine, most, self.now_ms)
        self.engine.checkpoints.take(self.now_ms)
        if not before:
            set_limit(self.engine, most, self.now_ms)
        arguments = self.engine.checkpoints.merge_arguments()
        if arguments:
            merge_runs(
                self.files, self.engine.store.runs_directory, int(arguments[1]), arguments[2:]
            )
            self.engine.checkpoints.adopt_merge(arguments)

    @rule(
        how=st.sampled_from(["stop", "kill", "kill in mid batch", "kill in checkpoint", "lose"]),
        jump_ms=st.sampled_from([0, 0, -HOUR_MS, HOUR_MS]),
    )
    def restart(self, how: str, jump_ms: int) -> None:
        before = facts(self.engine)
        if how == "stop":
            self.engine.close(self.now_ms)
        else:
            if how == "kill in mid batch":  # not acknowledged, not written: never happened
                lost = Outgoing(topic=TOPIC, rest=b"lost", sys=b"lost", message_id="lost")
                with suppress(StoreFullError):
                    self.engine.send([lost], self.now_ms)
            elif how == "kill in checkpoint":
                self.engine.checkpoints.begin(self.now_ms)
            self.engine.abandon()
        if how == "lose":
            for path in [path for path in self.files.inodes if path.suffix == ".ckpt"]:
                del self.files.inodes[path]
        assert verify_directory(DIRECTORY, self.files).ok
        assert start_on_copy(self) == start_on_copy(self)
        self.engine = self.open(before, jump_ms)
        locked(DIRECTORY, self.CONFIG.store, self.files, self.now_ms)
        if jump_ms > 0:
            self.time_passes(jump_ms)

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def written(self) -> None:
        self.engine.write()
        self.engine.take_ready()
        check_uses(self.engine)

    @invariant()
    def deaths_are_in_the_dead_letters_once(self) -> None:
        for group in GROUPS:
            dead = sorted(name for owner, name in self.in_state("dead") if owner == group)
            letters = self.engine.dead.scan(group, DeadFilter(), count_max=1_000).letters
            assert sorted(letter.sys.decode() for letter in letters) == dead
            assert all(len(letter.attempts) >= letter.attempt_count for letter in letters)

    @invariant()
    def what_waits_is_pending(self) -> None:
        counts = {
            (count.kind, count.group): count.count
            for count in self.engine.pending.count(PendingFilter())
        }
        assert counts.get((PendingKind.DELAYED, ""), 0) == len(waiting(self))
        for group in GROUPS:
            mine = [state.state for (owner, _), state in self.held.items() if owner == group]
            backoff = mine.count("backoff") + mine.count("ready")
            assert counts.get((PendingKind.BACKOFF, group), 0) == backoff
            assert counts.get((PendingKind.IN_FLIGHT, group), 0) == mine.count("leased")


def receivable(machine: EngineMachine, group: str) -> dict[str, Held]:
    """What a receive of the group may get."""
    found = {}
    for message, tag in machine.tags.items():
        held = machine.held[group, message]
        if message in machine.cancelled:
            continue
        fresh = held.state == "fresh" and message in machine.fired
        if (fresh or held.state == "ready") and GROUPS[group] in (None, frozenset({tag})):
            found[message] = held
    return found


def waiting(machine: EngineMachine) -> list[str]:
    """What is delayed."""
    gone = machine.fired | machine.cancelled
    return [name for name in machine.due_ms if name not in gone]


def start_on_copy(machine: EngineMachine) -> dict[str, object]:
    copy = MemoryFiles(machine.files.disk.clone())
    store = Store.open(DIRECTORY, machine.CONFIG.store, copy, machine.now_ms)
    engine = Engine.open(store, machine.CONFIG, machine.now_ms)
    found = facts(engine)
    engine.abandon()
    return found


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
