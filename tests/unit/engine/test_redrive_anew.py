"""A letter whose topic, or group, was made anew as something else: delivered, or refused."""

from itertools import product
from typing import Final

import pytest

from latermq_broker.config.config import CatalogConfig, DeliveryConfig
from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.state.model import DeadState, Outgoing, ReceiveRequest, TopicType
from latermq_broker.errors import PreconditionFailedError
from latermq_broker.store.records.message_records import NO_PRIORITY
from support.engine_facts import facts
from support.engine_rig import EngineRig

TYPES: Final = (
    TopicType.NORMAL, TopicType.FIFO, TopicType.PRIORITY, TopicType.LITE, TopicType.MIXED,
)  # fmt: skip
KINDS: Final = ("plain", "fifo", "lite")
ROOM: Final = "room-1"
SYS: Final = b"\xaa\x01\x06" + ROOM.encode()  # SystemProperties.lite_topic


def make(rig: EngineRig, topic: TopicType | None, kind: str | None) -> None:
    if topic is not None:
        count = 1 if topic is TopicType.LITE else 4
        rig.engine.topics.create("chat", topic, count, rig.now_ms)
    if kind == "lite":
        rig.engine.lites.bind("agents", "chat", rig.now_ms)
    elif kind is not None:
        rig.engine.groups.create(
            "agents", fifo=kind == "fifo", max_attempts=1, backoff=None, now_ms=rig.now_ms
        )


def hear(rig: EngineRig, count: int = 32) -> list[str]:
    request = ReceiveRequest(
        group="agents", topic="chat", client_id="c", count_max=count, invisible_ms=1_000,
        lite_keys=frozenset({lite_key(ROOM)}),
    )  # fmt: skip
    delivered = rig.engine.receive(request, rig.now_ms)
    rig.engine.write()
    for one in delivered:
        rig.engine.forward("agents", one.handle, rig.now_ms)
    return [one.rest.decode() for one in delivered]


def outgoing(topic: TopicType, name: str, *, priority: int = 3) -> Outgoing:
    lite, fifo, ranked = (
        topic is one for one in (TopicType.LITE, TopicType.FIFO, TopicType.PRIORITY)
    )
    return Outgoing(
        topic="chat",
        rest=name.encode(),
        sys=SYS if lite else b"",
        message_id=name,
        lite_topic=ROOM if lite else "",
        message_group=ROOM if fifo else "",
        priority=priority if ranked else NO_PRIORITY,
    )


def died(topic: TopicType, kind: str) -> EngineRig | None:
    """A letter of such a topic and group; None: there are no such two together."""
    if kind == "lite" and topic is not TopicType.LITE:
        return None
    rig = EngineRig(
        delivery=DeliveryConfig(max_attempts=1), catalog=CatalogConfig(default_queue_count=4)
    )
    make(rig, topic, kind)
    rig.engine.send([outgoing(topic, "old")], rig.now_ms)
    assert hear(rig) == ["old"]
    return rig


@pytest.mark.parametrize("life", ["live", "replayed", "from a checkpoint"])
@pytest.mark.parametrize(("topic", "kind"), list(product(TYPES, KINDS)))
def test_it_is_delivered_or_nothing_happens(topic: TopicType, kind: str, life: str) -> None:
    for new_topic, new_kind in product((None, *TYPES), (None, *KINDS)):
        rig = died(topic, kind)
        if rig is None:
            return
        if new_topic is not None:
            rig.engine.topics.delete("chat", rig.now_ms)
        if new_kind is not None:
            rig.engine.groups.delete("agents", rig.now_ms)
        try:
            make(rig, new_topic, new_kind)
        except Exception:  # noqa: BLE001
            assert new_kind == "lite"  # there is no such parent
            continue
        if new_topic is None and new_kind is not None:
            hear(rig)  # a new group begins with all that is retained
        what = f"{new_topic} {new_kind}"
        before = facts(rig.engine)
        refusal = ""
        try:
            rig.engine.dead.redrive("agents", 0, "", rig.now_ms)
        except PreconditionFailedError as error:
            refusal = str(error)
        if refusal:
            assert "lite topics" in refusal, what
            assert facts(rig.engine) == before, what
            assert rig.engine.dead.get("agents", 0).state is DeadState.DEAD
            continue
        after = facts(rig.engine)
        if life == "from a checkpoint":
            rig.checkpoint()
        if life != "live":
            rig.crash()
            assert facts(rig.engine) == after, what
        assert hear(rig) == ["old"], what
        assert hear(rig) == [], what


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_since_comes_too(kind: str) -> None:
    topic = TopicType.LITE if kind == "lite" else TopicType.FIFO
    rig = died(topic, kind)
    assert rig is not None
    rig.engine.topics.delete("chat", rig.now_ms)
    make(rig, topic, None)
    rig.engine.dead.redrive("agents", 0, "", rig.now_ms)
    rig.engine.send([outgoing(topic, name) for name in ("new-1", "new-2")], rig.now_ms)
    assert [*hear(rig, 1), *hear(rig, 1), *hear(rig, 1)] == ["old", "new-1", "new-2"]


def test_a_lite_group_whose_letter_is_of_no_lite_topic_is_told_so() -> None:
    rig = died(TopicType.FIFO, "fifo")
    assert rig is not None
    rig.engine.topics.delete("chat", rig.now_ms)
    rig.engine.groups.delete("agents", rig.now_ms)
    make(rig, TopicType.LITE, "lite")
    with pytest.raises(PreconditionFailedError) as refusal:
        rig.engine.dead.redrive("agents", 0, "", rig.now_ms)
    assert str(refusal.value) == (
        "group agents reads lite topics of chat, and this letter is of none: redrive it to a topic"
    )


def test_the_highest_priority_of_fewer_queues_is_taken() -> None:
    rig = died(TopicType.PRIORITY, "plain")
    assert rig is not None
    rig.engine.topics.delete("chat", rig.now_ms)
    rig.engine.topics.create("chat", TopicType.PRIORITY, 2, rig.now_ms)
    rig.engine.dead.redrive("agents", 0, "", rig.now_ms)
    low = outgoing(TopicType.PRIORITY, "low", priority=0)
    rig.engine.send([low], rig.now_ms)
    assert hear(rig, 1) == ["old"]
    assert hear(rig, 1) == ["low"]
