"""Lite topics against lists, with crashes, checkpoints, time and subscriptions that change.

Held after each receive: a client is given nothing of a lite topic it does not read; of each lite
topic what comes next in the group, in order, and nothing while anything of it is in flight or
waits; something comes whenever something may. Acknowledged messages do not come back, the others
do, and what a new subscription moved comes as it was moved. After each recovery lite topics,
progress and gates are what they were.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.catalog.lites import Begin, Beginning, lite_key
from latermq_broker.engine.state.model import Outgoing, ReceiveRequest, TopicType
from support.engine_facts import facts
from support.engine_rig import EngineRig
from support.small_bounds import MODEL_STORE

PARENT = "chat"
GROUPS = ("agents", "audit")
NAMES = ("a", "b", "c")
ATTEMPTS_MAX = 3
LEASE_MS = 1_000


@dataclass
class Known:
    name: str
    offset: int
    state: str = "fresh"  # fresh | leased | ready | done | dead
    attempt: int = 0
    handle: str = ""


class LiteMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = EngineRig(store=MODEL_STORE, delivery=DeliveryConfig(max_attempts=ATTEMPTS_MAX))
        self.rig.engine.topics.create(PARENT, TopicType.LITE, 0, self.rig.now_ms)
        for group in GROUPS:
            self.rig.engine.lites.bind(group, PARENT, self.rig.now_ms)
        self.lines: dict[tuple[str, str], list[Known]] = {(g, n): [] for g in GROUPS for n in NAMES}
        self.sent = 0

    def teardown(self) -> None:
        self.rig.engine.abandon()

    def leased(self) -> list[tuple[str, str, int]]:
        return [
            (group, name, index)
            for (group, name), line in self.lines.items()
            for index, one in enumerate(line)
            if one.state == "leased"
        ]

    def may_come(self, group: str, name: str) -> list[Known]:
        line = self.lines[group, name]
        if any(one.state == "leased" for one in line):
            return []
        return [one for one in line if one.state in ("fresh", "ready")]

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
    def send(self, names: list[str]) -> None:
        messages = []
        for lite_topic in names:
            name = f"m{self.sent}"
            for group in GROUPS:
                self.lines[group, lite_topic].append(Known(name, self.sent))
            self.sent += 1
            messages.append(
                Outgoing(
                    topic=PARENT,
                    rest=b"body",
                    sys=f"{name} {lite_topic}".encode(),
                    message_id=name,
                    lite_topic=lite_topic,
                )
            )
        sent = self.rig.engine.send(messages, self.rig.now_ms)
        assert [one.queue_offset for one in sent][-1] == self.sent - 1
        self.rig.engine.write()

    @rule(
        group=st.sampled_from(GROUPS),
        reads=st.sets(st.sampled_from(NAMES)),
        count=st.integers(1, 6),
        again=st.booleans(),
    )
    def receive(self, group: str, reads: set[str], count: int, again: bool) -> None:
        request = ReceiveRequest(
            group=group,
            topic=PARENT,
            client_id="client",
            count_max=count,
            invisible_ms=LEASE_MS,
            lite_keys=frozenset(map(lite_key, reads)),
            attempt_id=f"try-{self.sent}-{count}" if again else "",
        )
        may = {name: self.may_come(group, name) for name in reads}
        waits = self.rig.engine.lites.waits(group, PARENT, request.lite_keys)
        delivered = self.rig.engine.receive(request, self.rig.now_ms)
        self.rig.engine.write()
        if not again:
            assert waits or not delivered
            assert bool(delivered) == any(may.values())
        assert len(delivered) <= count
        taken: dict[str, int] = dict.fromkeys(reads, 0)
        for one in delivered:
            name, lite_topic = one.sys.decode().split()
            line = self.lines[group, lite_topic]
            known = next(known for known in line if known.name == name)
            if known.state == "leased":  # the reply to an earlier attempt once more
                assert again
                assert one.handle == known.handle
                continue
            assert may[lite_topic][taken[lite_topic]] is known
            taken[lite_topic] += 1
            known.attempt += 1
            assert one.attempt == known.attempt
            known.state, known.handle = "leased", one.handle

    @precondition(lambda self: bool(self.leased()))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        group, name, index = data.draw(st.sampled_from(self.leased()))
        known = self.lines[group, name][index]
        assert self.rig.engine.ack(group, [known.handle], self.rig.now_ms) == [None]
        self.rig.engine.write()
        known.state = "done"

    @rule()
    def all_leases_end(self) -> None:
        self.rig.advance(LEASE_MS)
        for line in self.lines.values():
            for known in line:
                if known.state == "leased":
                    known.state = "dead" if known.attempt == ATTEMPTS_MAX else "ready"

    @rule(
        group=st.sampled_from(GROUPS),
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        begin=st.sampled_from([Begin.FIRST, Begin.END, Begin.LAST, Begin.OFFSET]),
        number=st.integers(0, 30),
    )
    def begin(self, group: str, names: set[str], begin: Begin, number: int) -> None:
        engine = self.rig.engine
        owner = engine.catalog.require_group(group)
        engine.lites.begin(owner, names, Beginning(begin, number), self.rig.now_ms)
        engine.write()
        if begin is Begin.LAST:
            return
        first = {Begin.FIRST: 0, Begin.END: self.sent, Begin.OFFSET: number}[begin]
        first = min(first, self.sent)
        for name in names:
            for known in self.lines[group, name]:
                state = "fresh" if known.offset >= first else "done"
                known.state, known.attempt, known.handle = state, 0, ""

    @rule(name=st.sampled_from(NAMES))
    def counts(self, name: str) -> None:
        for group in GROUPS:
            line = self.lines[group, name]
            row = self.rig.engine.lites.row(self.rig.engine.catalog.require_group(group), name)
            assert (row is None) == (not line)
            if row is not None:
                assert row.unread_count == sum(one.state == "fresh" for one in line)
                live = sum(one.state in ("leased", "ready") for one in line)
                assert row.live_count == live

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        self.rig.engine.write()
        before = facts(self.rig.engine)
        if checkpoint:
            self.rig.checkpoint()
        self.rig.crash()
        assert facts(self.rig.engine) == before


TestLite = LiteMachine.TestCase
TestLite.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
