"""Message groups against lists, with crashes, restarts, checkpoints, retention and time.

Held after each step: a reply has of each message group what comes next, in order, and nothing while
anything of it is in flight, waits or is parked; what must go alone goes alone; something comes
whenever something may. Acknowledged messages do not come back, the others always do, attempt counts
are exact. After each recovery the gates are what they were, to the last held offset.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.config import CatalogConfig, Config, DeliveryConfig, StoreConfig
from latermq_broker.delivery.fifo import MessageGroup
from latermq_broker.delivery.filter import hash64
from latermq_broker.engine import leasing, ordered_lane
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import (
    DeadFilter,
    Delivered,
    Failure,
    OnDead,
    Outgoing,
    ReceiveRequest,
)
from latermq_broker.errors import StoreFullError
from latermq_broker.store.inspect import verify_directory
from latermq_broker.store.store import Store
from property.test_engine_model import facts as engine_facts
from support.engine_rig import short_store
from support.memory_files import MemoryFiles
from support.recount import check_uses

ATTEMPTS_MAX = 3
LEASE_MS = 1_000
CONFIG = Config(
    store=StoreConfig(segment_bytes=512 << 10, message_body_bytes_max=4 << 10),
    delivery=DeliveryConfig(max_attempts=ATTEMPTS_MAX, held_messages_max=6),
    catalog=CatalogConfig(default_queue_count=2),
)
GROUPS = {"skip": OnDead.SKIP, "park": OnDead.PARK}
KEYS = ("", "a", "b", "c")
TOPIC = "orders"
DIRECTORY = Path("/data")
FILLER = Outgoing(topic="filler", rest=bytes(1_000), sys=b"f", message_id="f")


@dataclass
class Known:
    """What the model knows of one message in one group."""

    name: str
    place: int  # in the order of sending
    sent_ms: int
    state: str = "fresh"  # fresh | leased | backoff | ready | done | dead | expired
    attempt: int = 0
    handle: str = ""
    deadline_ms: int = 0


def facts(engine: Engine) -> dict[str, object]:
    state = engine._state
    gates = {
        key: one.gate.facts() for key, one in state.subscriptions.items() if one.gate is not None
    }
    for one in state.subscriptions.values():
        if one.gate is not None:
            held = sum(len(group.held) for group in one.gate.groups.values())
            assert one.gate.held_count == held
    return engine_facts(engine) | {
        "gates": {key: one for key, one in gates.items() if one},
        "parking": dict(state.parking),
    }


def held_back(engine: Engine, group: str) -> bool:
    """So much is held that nothing more is looked at."""
    for (group_id, _), one in engine._state.subscriptions.items():
        if group_id == engine.groups.get(group).id and one.gate is not None:
            return one.gate.held_count >= CONFIG.delivery.held_messages_max
    return False


class FifoMachine(RuleBasedStateMachine):
    CONFIG = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.now_ms = 1_700_000_000_000
        self.sent = self.tries = 0
        self.queues = 2
        self.lines: dict[tuple[str, str], list[Known]] = {}  # by group and key
        self.parked: dict[tuple[str, str], set[str]] = {}
        self.engine = self.open()
        for group, on_dead in GROUPS.items():
            self.engine.groups.create(
                group,
                fifo=True,
                max_attempts=0,
                backoff=None,
                on_dead=on_dead,
                now_ms=self.now_ms,
            )
            for key in KEYS:
                self.lines[group, key] = []
                self.parked[group, key] = set()
        self.engine.ensure_topic(TOPIC, self.now_ms)
        self.engine.write()

    def teardown(self) -> None:
        self.engine.abandon()

    def open(self, before: dict[str, object] | None = None) -> Engine:
        store = Store.open(DIRECTORY, self.CONFIG.store, self.files, self.now_ms)
        engine = Engine.open(store, self.CONFIG, self.now_ms)
        engine.retention.step_cost = 0
        self.tick(engine)
        assert before in (None, facts(engine))
        engine.retention.step_cost = 3_000
        return engine

    def tick(self, engine: Engine) -> None:
        while (deadline_ms := engine.tick(self.now_ms)) is not None:
            if deadline_ms > self.now_ms:
                break
        engine.write()

    def in_state(self, *states: str) -> list[tuple[str, str, int]]:
        return [
            (group, key, index)
            for (group, key), line in self.lines.items()
            for index, one in enumerate(line)
            if one.state in states
        ]

    def may_come(self, group: str, key: str) -> list[Known]:
        """What of a message group may be received, the next first."""
        line = self.lines[group, key]
        if not key:
            return [one for one in line if one.state in ("fresh", "ready")]
        if self.parked[group, key] or any(one.state in ("leased", "backoff") for one in line):
            return []
        return [one for one in line if one.state in ("fresh", "ready")]

    # --- clients -------------------------------------------------------------------------------

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def send(self, keys: list[str]) -> None:
        messages = []
        for key in keys:
            name = f"m{self.sent}"
            self.sent += 1
            for group in GROUPS:
                self.lines[group, key].append(Known(name, self.sent, self.now_ms))
            messages.append(
                Outgoing(
                    topic=TOPIC,
                    rest=name.encode() * 20,
                    sys=f"{name} {key}".encode(),
                    message_id=name,
                    message_group=key,
                )
            )
        self.engine.send(messages, self.now_ms)

    @rule(
        group=st.sampled_from(sorted(GROUPS)),
        count=st.integers(1, 6),
        lost=st.booleans(),
        gone=st.booleans(),
    )
    def receive(self, group: str, count: int, lost: bool, gone: bool) -> None:
        self.tries += 1
        request = ReceiveRequest(
            group=group,
            topic=TOPIC,
            client_id="client",
            count_max=count,
            invisible_ms=LEASE_MS,
            attempt_id=f"try-{self.tries}" if lost else "",
        )
        may_come = {key: self.may_come(group, key) for key in KEYS}
        delivered = self.engine.receive(request, self.now_ms)
        for _ in range(5):
            if not delivered:  # a slice of what is blocked was passed over
                delivered = self.engine.receive(request, self.now_ms)
        held = held_back(self.engine, group)
        assert delivered or held or not any(may_come.values())
        assert len(delivered) <= count
        if lost and delivered:
            assert self.engine.receive(request, self.now_ms) == delivered
        if gone and delivered:
            self.engine.give_back(group, [one.handle for one in delivered], self.now_ms)
        self.check_order(group, delivered, may_come, gone)

    def check_order(
        self, group: str, delivered: list[Delivered], may_come: dict[str, list[Known]], gone: bool
    ) -> None:
        taken: dict[str, list[Known]] = {}
        for one in delivered:
            name, key = one.sys.decode().split(" ")
            coming = may_come[key]
            known = coming[0] if key else next(k for k in coming if k.name == name)
            assert known.name == name, "out of order"
            coming.remove(known)
            assert one.attempt == known.attempt + 1
            taken.setdefault(key, []).append(known)
            known.handle = one.handle
            known.state, known.deadline_ms = "leased", self.now_ms + LEASE_MS
            if gone:
                known.state, known.deadline_ms = "backoff", self.now_ms + 1_000
            else:
                known.attempt += 1
        for key, batch in taken.items():
            attempts = [one.attempt + gone for one in batch]
            if key and (GROUPS[group] is OnDead.PARK or max(attempts) >= ATTEMPTS_MAX):
                assert len(batch) == 1

    @precondition(lambda self: self.in_state("leased", "backoff"))
    @rule(draw=st.data())
    def ack(self, draw: st.DataObject) -> None:
        group, key, index = draw.draw(
            st.sampled_from(self.in_state("leased") or self.in_state("backoff"))
        )
        one = self.lines[group, key][index]
        live = one.state == "leased" or self.engine._state.live_delivery(
            group, one.handle, self.now_ms
        )
        if live:
            assert self.engine.ack(group, [one.handle], self.now_ms) == [None]
            one.state = "done"

    @precondition(lambda self: self.in_state("leased"))
    @rule(
        draw=st.data(),
        wait_ms=st.integers(1, 2_500),
        kind=st.sampled_from(["extend", "nack", "nack", "suspend", "forward"]),
    )
    def settle(self, draw: st.DataObject, wait_ms: int, kind: str) -> None:
        group, key, index = draw.draw(st.sampled_from(self.in_state("leased")))
        one = self.lines[group, key][index]
        failure = Failure("ValueError", "bad", "", "") if kind in ("nack", "forward") else None
        if kind == "forward":
            self.engine.forward(group, one.handle, self.now_ms, failure)
            self.engine.forward(group, one.handle, self.now_ms, failure)
            return self.dies(group, key, one)
        one.handle = self.engine.change_invisible(
            group, one.handle, wait_ms, self.now_ms, suspend=kind == "suspend", failure=failure
        )
        one.deadline_ms = self.now_ms + wait_ms
        if kind == "nack" and one.attempt == ATTEMPTS_MAX:
            return self.dies(group, key, one)
        if kind != "extend":
            one.state = "backoff"
            one.attempt -= kind == "suspend"
        return None

    def dies(self, group: str, key: str, one: Known) -> None:
        one.state = "dead"
        if key and GROUPS[group] is OnDead.PARK:
            self.parked[group, key].add(one.name)

    # --- operators -----------------------------------------------------------------------------

    @precondition(lambda self: self.in_state("dead"))
    @rule(draw=st.data(), how=st.sampled_from(["drop", "redrive"]))
    def release(self, draw: st.DataObject, how: str) -> None:
        group, key, index = draw.draw(st.sampled_from(self.in_state("dead")))
        one = self.lines[group, key][index]
        letter = self.engine.dead.get(group, message_id=one.name)
        self.parked[group, key].discard(one.name)
        if how == "drop":
            self.engine.dead.drop(group, [letter.queue_offset], self.now_ms)
            one.state = "done"
            return
        self.engine.dead.redrive(group, letter.queue_offset, "", self.now_ms)
        one.state, one.attempt = "ready", 0

    @precondition(lambda self: self.queues < 5)
    @rule()
    def more_queues(self) -> None:
        self.queues += 1
        self.engine.topics.alter(TOPIC, None, self.queues, self.now_ms)

    # --- brokers -------------------------------------------------------------------------------

    @rule(step_ms=st.one_of(st.integers(0, 2_000), st.integers(0, 9_000)))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms
        for (group, key), line in self.lines.items():
            for one in line:
                if one.deadline_ms <= self.now_ms and one.state in ("leased", "backoff"):
                    if one.state == "leased" and one.attempt == ATTEMPTS_MAX:
                        self.dies(group, key, one)
                    else:
                        one.state = "ready"
        self.tick(self.engine)

    @rule()
    def checkpoint(self) -> None:
        self.engine.checkpoints.take(self.now_ms)

    @rule(how=st.sampled_from(["stop", "kill", "kill in mid batch", "lose"]))
    def restart(self, how: str) -> None:
        before = facts(self.engine)
        if how == "stop":
            self.engine.close(self.now_ms)
        else:
            if how == "kill in mid batch":
                lost = Outgoing(topic=TOPIC, rest=b"l", sys=b"l", message_id="l", message_group="a")
                with suppress(StoreFullError):
                    self.engine.send([lost], self.now_ms)
            self.engine.abandon()
        if how == "lose":
            for path in [path for path in self.files.inodes if path.suffix == ".ckpt"]:
                del self.files.inodes[path]
        assert verify_directory(DIRECTORY, self.files).ok
        self.engine = self.open(before)

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def written(self) -> None:
        self.engine.write()
        self.engine.take_ready()
        check_uses(self.engine)

    @invariant()
    def gates_hold_what_is_under_way_and_nothing_else(self) -> None:
        for group in GROUPS:
            group_id = self.engine.groups.get(group).id
            for (reader, _), one in self.engine._state.subscriptions.items():
                if reader == group_id and one.gate is not None:
                    check_gate(self, group, one.gate.groups)

    @invariant()
    def deaths_are_in_the_dead_letters_once(self) -> None:
        for group in GROUPS:
            letters = self.engine.dead.scan(group, DeadFilter(), count_max=1_000).letters
            dead = [self.lines[g, key][i].name for g, key, i in self.in_state("dead") if g == group]
            assert sorted(one.sys.decode().split(" ")[0] for one in letters) == sorted(dead)


def check_gate(machine: FifoMachine, group: str, gates: dict[int, MessageGroup]) -> None:
    names = {hash64(key): key for key in KEYS if key}
    for order_key, gate in gates.items():
        line = machine.lines[group, names[order_key]]
        live = sum(one.state in ("leased", "backoff", "ready") for one in line)
        assert len(gate.live) == live
        assert gate.busy == sum(one.state in ("leased", "backoff") for one in line)
        assert bool(gate.parked) == bool(machine.parked[group, names[order_key]])
        assert live or len(gate.held) or gate.parked


class FifoRetentionMachine(FifoMachine):
    """Segments fill and go; what was not received in time expires, held back or not."""

    CONFIG = replace(CONFIG, store=short_store(retention_ms=5_000, dead_letter_retention_ms=9_000))

    def tick(self, engine: Engine) -> None:
        super().tick(engine)
        self.note_expired(engine)

    @rule(count=st.integers(1, 40))
    def others_send(self, count: int) -> None:
        for _ in range(count):
            self.engine.send([FILLER], self.now_ms)

    @rule(seconds=st.integers(1, 12))
    def seconds_pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time_passes(1_000)

    @rule()
    def all_ages(self) -> None:
        """What stands there is older than any retention, and its segment may go."""
        for _ in range(3):
            self.others_send(40)
            self.engine.write()
            self.checkpoint()
            self.seconds_pass(5)

    def note_expired(self, engine: Engine) -> None:
        here = names_in(engine, TOPIC)
        for (group, key), line in self.lines.items():
            letters = names_in(engine, f"%DLQ%{group}")
            for one in line:
                if one.state == "fresh" and one.name not in here:
                    assert self.now_ms - one.sent_ms >= 5_000
                    one.state = "expired"
                elif one.state == "dead" and one.name not in letters:
                    one.state = "expired"
                    self.parked[group, key].discard(one.name)


def names_in(engine: Engine, topic_name: str) -> set[str]:
    topic = engine.catalog.topic(topic_name)
    found = set()
    for ends in engine.topics.ends(topic) if topic is not None else ():
        rows = engine.queues.read(
            topic_name,
            "",
            ends.queue_id,
            ends.earliest_offset,
            ends.next_offset,
            rows_max=10_000,
            bytes_max=1 << 30,
        )
        found |= {row.sys.decode().split(" ")[0] for row in rows}
    return found


@pytest.fixture(autouse=True, scope="module")
def short_scans() -> Iterator[None]:
    """A few entries at a time, so that examples reach the ends of scans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_lane, "SCAN_MAX", 4)
        patch.setattr(ordered_lane, "SCANNED_UNWRITTEN_MAX", 2)
        assert leasing.SCAN_MAX > 4
        yield


TestFifo = FifoMachine.TestCase
TestFifo.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestFifoRetention = FifoRetentionMachine.TestCase
TestFifoRetention.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
