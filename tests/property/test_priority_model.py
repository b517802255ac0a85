"""A topic of type priority against a dict: what comes first, with retries, delays and restarts.

Held after each receive: nothing that stayed behind has a higher priority than anything that came,
but for the share of lower priorities, and nothing stayed behind while there was room. A lower
priority that always has something gets its share, and no more while higher ones have enough.
Retries, delayed messages and redriven letters keep their priority. After each recovery the lanes
are what they were, in their order.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from latermq_broker.config.config import CatalogConfig, DeliveryConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Delivered, Outgoing, TopicType
from support.engine_facts import facts as engine_facts
from support.engine_facts import newest_letter
from support.engine_rig import EngineRig
from support.small_bounds import MODEL_STORE

TOPIC = "alarms"
GROUP = "billing"
QUEUES = 4
ATTEMPTS_MAX = 3
LEASE_MS = 1_000


@dataclass
class Known:
    rank: int
    state: str = "ready"  # delayed | ready | leased | done | dead
    attempt: int = 0
    handle: str = ""


def facts(engine: Engine) -> dict[str, object]:
    lanes = {
        key: [delivery.id for delivery in one.ready]
        for key, one in engine._state.subscriptions.items()
    }
    return engine_facts(engine) | {"lanes": {key: ids for key, ids in lanes.items() if ids}}


class PriorityMachine(RuleBasedStateMachine):
    FIFO = False
    PERCENT = 10

    def __init__(self) -> None:
        super().__init__()
        self.rig = EngineRig(
            store=MODEL_STORE,
            delivery=DeliveryConfig(max_attempts=ATTEMPTS_MAX, lower_priority_percent=self.PERCENT),
            catalog=CatalogConfig(default_queue_count=1),
        )
        engine, now_ms = self.rig.engine, self.rig.now_ms
        engine.topics.create(TOPIC, TopicType.PRIORITY, QUEUES, now_ms)
        engine.groups.create(
            GROUP, fifo=self.FIFO, max_attempts=ATTEMPTS_MAX, backoff=None, now_ms=now_ms
        )
        self.known: dict[str, Known] = {}
        self.sent = 0
        self.given = [0] * QUEUES  # by rank, that it had more: messages given to anybody since
        self.got = [0] * QUEUES  # … and to it, of those
        self.all_given = 0
        self.early = [0] * QUEUES  # given of it while there was more of a higher one

    def teardown(self) -> None:
        self.rig.engine.abandon()

    def named(self, *states: str) -> list[str]:
        return [name for name, one in self.known.items() if one.state in states]

    @rule(
        priorities=st.lists(st.integers(0, QUEUES + 2), min_size=1, max_size=6),
        wait_ms=st.sampled_from([0, 0, 0, 1_500]),
    )
    def send(self, priorities: list[int], wait_ms: int) -> None:
        messages = []
        for priority in priorities:
            name = f"m{self.sent}"
            self.sent += 1
            rank = min(priority, QUEUES - 1)
            self.known[name] = Known(rank, "delayed" if wait_ms else "ready")
            messages.append(
                Outgoing(
                    topic=TOPIC,
                    rest=b"body",
                    sys=name.encode(),
                    message_id=name,
                    deliver_at_ms=self.rig.now_ms + wait_ms if wait_ms else 0,
                    priority=priority,
                )
            )
        self.rig.engine.send(messages, self.rig.now_ms)
        self.rig.engine.write()

    @rule(count=st.integers(1, 8))
    def receive(self, count: int) -> None:
        ready = self.named("ready")
        delivered = self.rig.receive(GROUP, topic=TOPIC, count=count, lease_ms=LEASE_MS)
        assert len(delivered) == min(count, len(ready)), "too many or too few"
        for one in delivered:
            self.take(one)
        ranks = [self.known[one.sys.decode()].rank for one in delivered]
        assert ranks == sorted(ranks, reverse=True)
        self.shares(ranks, [self.known[name].rank for name in self.named("ready")])

    def shares(self, ranks: list[int], behind: list[int]) -> None:
        highest = max(behind, default=-1)
        late = all(rank < highest for rank in ranks)  # shares came due together, more than went in
        for rank in range(QUEUES):
            mine = ranks.count(rank)
            self.early[rank] += mine if rank < highest else 0
            if rank not in behind:
                self.given[rank] = self.got[rank] = 0
                continue
            self.given[rank] += len(ranks)
            self.got[rank] += mine
            owed = self.given[rank] * self.PERCENT // 100
            assert self.got[rank] >= owed - late, "it starves"
        self.all_given += len(ranks)
        for rank in range(QUEUES - 1):
            at_most = self.all_given * self.PERCENT / 100
            assert self.early[rank] <= at_most, "more than its share"

    def take(self, one: Delivered) -> None:
        known = self.known[one.sys.decode()]
        assert known.state == "ready"
        assert one.queue_id == known.rank
        known.state, known.attempt, known.handle = "leased", known.attempt + 1, one.handle
        assert one.attempt == known.attempt

    @precondition(lambda self: self.named("leased"))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        known = self.known[data.draw(st.sampled_from(self.named("leased")))]
        assert self.rig.engine.ack(GROUP, [known.handle], self.rig.now_ms) == [None]
        self.rig.engine.write()
        known.state = "done"

    @rule()
    def all_waits_end(self) -> None:
        self.rig.advance(LEASE_MS * 2)
        for known in self.known.values():
            if known.state == "leased":
                known.state = "dead" if known.attempt == ATTEMPTS_MAX else "ready"
            elif known.state == "delayed":
                known.state = "ready"

    @precondition(lambda self: self.named("dead"))
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.named("dead")))
        engine = self.rig.engine
        letter = newest_letter(engine, GROUP, name)
        to_topic = data.draw(st.sampled_from(["", TOPIC]))
        engine.dead.redrive(GROUP, letter.queue_offset, to_topic, self.rig.now_ms)
        engine.write()
        self.known[name] = Known(self.known[name].rank)

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        self.rig.engine.write()
        before = facts(self.rig.engine)
        if checkpoint:
            self.rig.checkpoint()
        self.rig.crash()
        assert facts(self.rig.engine) == before
        self.given, self.got = [0] * QUEUES, [0] * QUEUES  # what is owed is forgotten


class OrderedPriorityMachine(PriorityMachine):
    """A group that keeps the order of message groups: messages with a priority have none."""

    FIFO = True


class StrictPriorityMachine(PriorityMachine):
    """Without a share nothing lower comes while there is something higher."""

    PERCENT = 0


TestStrictPriority = StrictPriorityMachine.TestCase
TestStrictPriority.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestPriority = PriorityMachine.TestCase
TestPriority.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestOrderedPriority = OrderedPriorityMachine.TestCase
TestOrderedPriority.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
