"""FIFO batches with `compat.strict`, in any order of acks, failures, time and restarts.

The model is RocketMQ's rule for one message group: what was acknowledged is done once all before it
is; else it comes again, in order, with the first that was not, one attempt more each.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.engine.state.model import DeadFilter, Failure, Outgoing, TopicType
from support.engine_facts import facts
from support.engine_rig import EngineRig
from support.recount import check_uses
from support.small_bounds import MODEL_STORE

ATTEMPTS_MAX = 4
ALONE_FROM = 3
LEASE_MS = 1_000
FAILURE = Failure("E", "x", "", "")


@dataclass
class Sent:
    """One message: fresh | leased | ready | backoff | acked | done | dead."""

    name: str
    state: str = "fresh"
    attempt: int = 0
    handle: str = ""
    due_ms: int = 0


class StrictMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = EngineRig(store=MODEL_STORE, strict=True)
        engine = self.rig.engine
        engine.topics.create("orders", TopicType.FIFO, 1, self.rig.now_ms)
        engine.groups.create(
            "billing", fifo=True, max_attempts=ATTEMPTS_MAX, backoff=None, now_ms=self.rig.now_ms
        )
        self.sent: list[Sent] = []

    def teardown(self) -> None:
        self.rig.engine.abandon()

    def live(self, *states: str) -> list[Sent]:
        return [one for one in self.sent if one.state in states]

    def settle(self) -> None:
        """What is acknowledged and has nothing before it is done."""
        for one in self.live("leased", "ready", "backoff", "acked"):
            if one.state != "acked":
                return
            one.state = "done"

    def end(self, one: Sent, state: str, due_ms: int = 0) -> None:
        one.state, one.due_ms = state, due_ms
        if state != "dead" and one.attempt >= ATTEMPTS_MAX:
            one.state = "dead"
        self.settle()

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        names = [f"m{len(self.sent) + index}" for index in range(count)]
        self.rig.engine.send(
            [Outgoing("orders", b"x", name.encode(), name, message_group="a") for name in names],
            self.rig.now_ms,
        )
        self.sent += map(Sent, names)

    @rule(count=st.integers(1, 5))
    def receive(self, count: int) -> None:
        got = self.rig.receive(count=count, lease_ms=LEASE_MS)
        expected: list[Sent] = []
        if not self.live("leased", "backoff"):
            for one in self.live("ready", "acked", "fresh"):
                alone = one.attempt + 1 >= ALONE_FROM
                if len(expected) == count or (alone and expected):
                    break
                expected.append(one)
                if alone:
                    break
        assert [one.sys.decode() for one in got] == [one.name for one in expected]
        for one, delivered in zip(expected, got, strict=True):
            one.state, one.attempt, one.handle = "leased", one.attempt + 1, delivered.handle
            one.due_ms = self.rig.now_ms + LEASE_MS
            assert delivered.attempt == one.attempt

    @precondition(lambda self: self.live("leased"))
    @rule(draw=st.data())
    def ack(self, draw: st.DataObject) -> None:
        acked = draw.draw(st.lists(st.sampled_from(self.live("leased")), min_size=1, unique_by=id))
        for _ in range(2):  # clients repeat it
            handles = [one.handle for one in acked]
            results = self.rig.engine.ack("billing", handles, self.rig.now_ms)
            assert results == [None] * len(acked)
        for one in acked:
            one.state = "acked"
        self.settle()

    @precondition(lambda self: self.live("leased"))
    @rule(draw=st.data(), how=st.sampled_from(["nack", "suspend", "forward"]))
    def fail(self, draw: st.DataObject, how: str) -> None:
        one = draw.draw(st.sampled_from(self.live("leased")))
        engine, now_ms = self.rig.engine, self.rig.now_ms
        if how == "forward":
            engine.forward("billing", one.handle, now_ms, FAILURE)
            return self.end(one, "dead")
        engine.change_invisible(
            "billing",
            one.handle,
            500,
            now_ms,
            suspend=how == "suspend",
            failure=FAILURE if how == "nack" else None,
        )
        one.attempt -= how == "suspend"
        return self.end(one, "backoff", now_ms + 500)

    @rule(step_ms=st.sampled_from([1, 499, 500, 1_000]))
    def time_passes(self, step_ms: int) -> None:
        self.rig.advance(step_ms)
        for one in self.live("leased", "backoff"):
            if one.due_ms <= self.rig.now_ms:
                ended = one.state == "leased"
                one.state = "ready"
                if ended:
                    self.end(one, "ready")

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        if checkpoint:
            self.rig.checkpoint()
        before = facts(self.rig.engine)
        self.rig.crash()
        self.rig.advance(0)  # a backoff that is over is no record: the first tick makes it ready
        assert facts(self.rig.engine) == before

    @invariant()
    def what_is_over_is_over(self) -> None:
        self.rig.engine.write()
        check_uses(self.rig.engine)
        held = self.live("leased", "ready", "backoff", "acked")
        assert len(self.rig.engine._state.leases.deliveries) == len(held)
        letters = self.rig.engine.dead.scan("billing", DeadFilter(), count_max=1_000).letters
        assert sorted(one.sys.decode() for one in letters) == sorted(
            one.name for one in self.live("dead")
        )


TestStrictBatches = StrictMachine.TestCase
TestStrictBatches.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
