"""What makes and deletes topics and groups, and what clients do in between: rules of the model of
`test_anew_model.py`."""

from contextlib import suppress
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from latermq_broker.config.config import CatalogConfig, DeliveryConfig
from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    Delivered,
    OnDead,
    Outgoing,
    ReceiveRequest,
    TopicType,
)
from latermq_broker.errors import RequestError
from latermq_proto.apache.rocketmq.v2.definition_pb2 import SystemProperties
from support.engine_rig import EngineRig
from support.small_bounds import MODEL_STORE

TOPICS = ("orders", "alarms")
GROUPS = ("billing", "audit")
READER = "undertaker"  # reads the dead letters of the first
KEYS = ("a", "b")  # message groups, and lite topics
KINDS = ("plain", "skip", "park", "lite")
TYPES = st.sampled_from([*TopicType, *[TopicType.PRIORITY, TopicType.LITE] * 3])
LEASE_MS = 1_000


@dataclass(frozen=True)
class Owed:
    group: str
    topic: str
    name: str


class AnewRules(RuleBasedStateMachine):
    """What is made and deleted, and what clients do."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = EngineRig(
            store=MODEL_STORE,
            delivery=DeliveryConfig(max_attempts=3),
            catalog=CatalogConfig(default_queue_count=2),
        )
        self.engine.topics.create(TOPICS[0], TopicType.FIFO, 2, self.rig.now_ms)
        self.engine.topics.create(TOPICS[1], TopicType.LITE, 0, self.rig.now_ms)
        self.make_group(GROUPS[0], "skip")
        self.make_group(GROUPS[1], "lite")
        self.make_group(READER, "plain")
        self.in_hand: dict[tuple[str, str], Delivered] = {}  # group and message → what it holds
        self.owed: set[Owed] = set()
        self.done: set[Owed] = set()  # acknowledged, and not asked for again since
        self.came_from: dict[tuple[str, str], str] = {}
        self.sent_to: dict[str, str] = {}  # message → the epoch of its topic
        self.copied: set[str] = set()  # redriven to a topic: they may stand in two places
        self.sent = 0

    @property
    def engine(self) -> Engine:
        return self.rig.engine

    def teardown(self) -> None:
        self.rig.engine.abandon()

    # --- what is made and deleted --------------------------------------------------------------

    @rule(
        name=st.sampled_from(TOPICS),
        type=TYPES,
        queues=st.integers(1, 4),
    )
    def make_topic_anew(self, name: str, type: TopicType, queues: int) -> None:
        self.engine.topics.delete(name, self.rig.now_ms)
        queues = 1 if type is TopicType.LITE else queues
        self.engine.topics.create(name, type, queues, self.rig.now_ms)
        self.engine.write()
        self.owed = {one for one in self.owed if one.topic != name}
        self.done = {one for one in self.done if one.topic != name}
        self.in_hand.clear()

    @rule(name=st.sampled_from(GROUPS), kind=st.sampled_from(KINDS))
    def make_group_anew(self, name: str, kind: str) -> None:
        self.engine.groups.delete(name, self.rig.now_ms)
        self.make_group(name, kind)
        self.owed = {one for one in self.owed if one.group != name}
        self.done = {one for one in self.done if one.group != name}
        self.in_hand = {key: one for key, one in self.in_hand.items() if key[0] != name}

    def make_group(self, name: str, kind: str) -> None:
        self.engine.groups.create(
            name,
            fifo=kind != "plain",
            max_attempts=3,
            backoff=None,
            on_dead=OnDead.PARK if kind == "park" else OnDead.SKIP,
            lite_parent=TOPICS[1] if kind == "lite" else "",
            now_ms=self.rig.now_ms,
        )
        self.engine.write()

    # --- what clients do -----------------------------------------------------------------------

    @rule(
        topic=st.sampled_from(TOPICS), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
    )
    def send(self, topic: str, keys: list[str]) -> None:
        known = self.engine.catalog.topic(topic)
        assert known is not None
        lite = known.type is TopicType.LITE
        ranked = known.type is TopicType.PRIORITY
        messages = [
            Outgoing(
                topic=topic,
                rest=b"body",
                sys=SystemProperties(
                    message_id=f"m{number}", lite_topic=key if lite else None
                ).SerializeToString(),
                message_id=f"m{number}",
                message_group="" if lite or ranked else key,
                lite_topic=key if lite else "",
                priority=KEYS.index(key) if ranked else -1,
            )
            for number, key in enumerate(keys, self.sent)
        ]
        self.sent += len(keys)
        self.sent_to |= {message.message_id: known.epoch for message in messages}
        self.engine.send(messages, self.rig.now_ms)
        self.engine.write()

    @rule(group=st.sampled_from(GROUPS), topic=st.sampled_from(TOPICS))
    def receive(self, group: str, topic: str) -> None:
        for one in received(self.engine, group, topic, self.rig.now_ms):
            self.in_hand[group, name_of(one.sys)] = one
            self.owed.discard(Owed(group, topic, name_of(one.sys)))
            self.came_from[group, name_of(one.sys)] = topic
        self.engine.write()

    @precondition(lambda self: self.in_hand)
    @rule(draw=st.data(), ack=st.booleans())
    def settle(self, draw: st.DataObject, ack: bool) -> None:
        """Or what may have ended meanwhile: then it is refused."""
        group, name = draw.draw(st.sampled_from(sorted(self.in_hand)))
        one = self.in_hand.pop((group, name))
        with suppress(RequestError):
            if ack:
                if self.engine.ack(group, [one.handle], self.rig.now_ms) == [None]:
                    self.done.add(Owed(group, self.came_from[group, name], name))
            else:
                self.engine.forward(group, one.handle, self.rig.now_ms)
        self.engine.write()

    @rule(
        group=st.sampled_from(GROUPS),
        topic=st.sampled_from(TOPICS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
    )
    def some_die(self, group: str, topic: str, keys: list[str]) -> None:
        """What makes letters, in one step: rules are chosen without regard to what is common."""
        self.send(topic, keys)
        self.receive(group, topic)
        self.all_fail()

    def all_fail(self) -> None:
        for (group, _), one in self.in_hand.items():
            with suppress(RequestError):
                self.engine.forward(group, one.handle, self.rig.now_ms)
        self.in_hand.clear()
        self.engine.write()

    @rule(step_ms=st.sampled_from([10, LEASE_MS, 60_000]))
    def time_passes(self, step_ms: int) -> None:
        self.rig.advance(step_ms)


def name_of(sys: bytes) -> str:
    return SystemProperties.FromString(sys).message_id


def received(engine: Engine, group: str, topic: str, now_ms: int) -> list[Delivered]:
    """By a client that wants everything; nothing, where the service would refuse it."""
    owner = engine.catalog.require_group(group)
    known = engine.catalog.topic(topic)
    assert known is not None
    lite = known.type is TopicType.LITE and owner.lite_parent == topic
    if bool(owner.lite_parent) != lite:
        return []
    request = ReceiveRequest(
        group=group,
        topic=topic,
        client_id="client",
        count_max=32,
        invisible_ms=LEASE_MS,
        lite_keys=frozenset(map(lite_key, KEYS)) if lite else frozenset(),
    )
    return engine.receive(request, now_ms)
