"""Lite topics where time, retention and administration meet them; and their bytes."""

from dataclasses import replace

import pytest

from latermq_broker.config.config import LiteConfig
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.engine.catalog.lites import Begin, Beginning, lite_key
from latermq_broker.engine.state.model import Delivered, Outgoing, ReceiveRequest, TopicType
from latermq_broker.errors import BadRequestError, IllegalTopicError
from latermq_broker.store.records.lite_records import (
    LITE_CURSOR,
    LITE_EXPIRED,
    LitePayload,
    decode_lite,
    encode_lite,
)
from latermq_broker.store.records.message_records import (
    MESSAGE_LITE,
    MESSAGE_ORDERED,
    MessagePayload,
    decode_message_head,
    encode_message,
    message_order_key,
    message_slices,
)
from latermq_broker.store.records.record import RecordType
from support.engine_facts import facts, newest_letter
from support.engine_rig import EngineRig, short_store

MINUTE_MS = 60_000


class LiteRig(EngineRig):
    def make(self) -> None:
        self.engine.topics.create("chat", TopicType.LITE, 0, self.now_ms)
        self.engine.lites.bind("agents", "chat", self.now_ms)
        self.engine.write()

    def tell(self, lite_topic: str, *names: str, body: bytes = b"body") -> None:
        for name in names:
            one = Outgoing(
                topic="chat",
                rest=body,
                sys=name.encode(),
                message_id=name,
                lite_topic=lite_topic,
            )
            self.engine.send([one], self.now_ms)
        self.engine.write()

    def hear(self, *lite_topics: str, count: int = 32, group: str = "agents") -> list[Delivered]:
        request = ReceiveRequest(
            group=group,
            topic="chat",
            client_id="client",
            count_max=count,
            invisible_ms=1_000,
            lite_keys=frozenset(map(lite_key, lite_topics)),
        )
        delivered = self.engine.receive(request, self.now_ms)
        self.engine.write()
        return delivered

    def lite_topics(self) -> dict[str, int]:
        parents = self.engine._state.lites.values()
        return {one.name: len(one) for parent in parents for one in parent.topics.values()}


def named(delivered: list[Delivered]) -> list[str]:
    return [one.sys.decode() for one in delivered]


def test_records_byte_by_byte() -> None:
    lite = LitePayload(LITE_CURSOR, 2, 3, ((4, 5), (6, 7)))
    data = b"".join(map(bytes, encode_lite(lite)))
    assert data.hex() == (
        "01000000" "02000000" "03000000" "00000000"
        "0400000000000000" "0500000000000000" "0600000000000000" "0700000000000000"
    )  # fmt: skip
    assert decode_lite(data) == lite
    message = MessagePayload(
        topic_id=1, queue_id=0, kind=MESSAGE_ORDERED | MESSAGE_LITE, queue_offset=9, due_ms=0,
        tag_hash=0, id_hash=0, delay_level=0, key_hashes=(8,), rest=b"rest", sys=b"sys",
        order_key=hash64("room-1"), lite_topic="room-1",
    )  # fmt: skip
    data = b"".join(map(bytes, encode_message(message)))
    assert data.endswith(b"restsys" + b"room-1\x06" + hash64("room-1").to_bytes(8, "little"))
    head = decode_message_head(data)
    assert (head.lite_topic, head.key_hashes, head.queue_offset) == ("room-1", (8,), 9)
    assert message_order_key(data) == hash64("room-1")
    assert message_slices(data) == (b"rest", b"sys")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_lite_topic_goes_with_the_last_of_its_messages(checkpoint: bool) -> None:
    rig = LiteRig(store=short_store(retention_ms=MINUTE_MS))
    rig.make()
    rig.tell("old", "o0", "o1", body=b"x" * 1_000)
    rig.tell("both", "b0", body=b"x" * 1_000)
    assert named(rig.hear("old", count=1)) == ["o0"]
    rig.tell("filler", *(f"f{number}" for number in range(40)), body=b"x" * 1_000)
    rig.advance(MINUTE_MS * 2)  # the lease is over: o0 waits to be received again
    for number in range(40):
        rig.tell("new", f"n{number}", body=b"x" * 1_000)
    rig.tell("both", "b1")
    rig.retain()
    assert "old" not in rig.lite_topics()
    assert rig.lite_topics()["both"] == 1
    before = facts(rig.engine)
    if checkpoint:
        rig.checkpoint()
    rig.crash()
    assert facts(rig.engine) == before
    assert named(rig.hear("old", "both")) == ["o0", "b1"]  # rolled forward


def test_a_group_that_heard_nothing_yet_is_known_to_read_the_parent_after_a_kill() -> None:
    rig = LiteRig()
    rig.make()
    keys = frozenset([lite_key("room")])
    assert rig.engine.lites.waits("agents", "chat", keys)  # the receive finds out
    assert rig.engine.topics.describe("chat").groups == ()  # who only looks reads nothing
    assert rig.hear("room") == []
    before = facts(rig.engine)
    assert not rig.engine.lites.waits("agents", "chat", keys)
    rig.crash()
    assert facts(rig.engine) == before
    assert rig.engine.topics.describe("chat").groups == ("agents",)
    rig.tell("room", "r0")
    assert rig.engine.lites.waits("agents", "chat", keys)
    assert named(rig.hear("room")) == ["r0"]


def test_what_is_idle_for_too_long_expires() -> None:
    rig = LiteRig()
    rig.config = replace(rig.config, lite=LiteConfig(topic_idle_ms_max=MINUTE_MS))
    rig.crash()
    rig.make()
    rig.tell("idle", "i0", "i1")
    assert named(rig.hear("idle", count=1)) == ["i0"]
    rig.advance(MINUTE_MS - 1_000)
    rig.tell("busy", "b0")
    rig.advance(2_500)
    assert rig.lite_topics() == {"busy": 1}
    assert named(rig.hear("idle", "busy")) == ["i0", "b0"]  # what was given comes again; i1 is gone
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before
    rig.tell("idle", "i2")
    assert rig.lite_topics() == {"idle": 1, "busy": 1}


def test_reset_moves_all_lite_topics() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0")
    rig.advance(10)
    reset_ms = rig.now_ms
    rig.tell("a", "a1")
    rig.tell("b", "b0")
    rig.ack(*rig.hear("a", "b"), group="agents")
    rig.engine.groups.reset("agents", "chat", reset_ms, rig.now_ms)
    rig.crash()
    assert sorted(named(rig.hear("a", "b"))) == ["a1", "b0"]


def test_a_deleted_parent_leaves_nothing() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0")
    rig.hear("a")
    rig.engine.topics.delete("chat", rig.now_ms)
    assert rig.engine._state.lites == {}
    rig.engine.topics.create("chat", TopicType.LITE, 0, rig.now_ms)
    rig.tell("a", "a1")
    assert named(rig.hear("a")) == ["a1"]
    rig.engine.groups.delete("agents", rig.now_ms)
    assert rig.engine._state.lites[2].readers == {}
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before


def test_the_dead_go_back_to_their_group_in_place() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0", "a1")
    [first] = rig.hear("a", count=1)
    rig.engine.forward("agents", first.handle, rig.now_ms)
    letter = newest_letter(rig.engine, "agents", "a0")
    with pytest.raises(BadRequestError, match="lite topics"):
        rig.engine.dead.redrive("agents", letter.queue_offset, "chat", rig.now_ms)
    rig.engine.dead.redrive("agents", letter.queue_offset, "", rig.now_ms)
    rig.crash()
    assert named(rig.hear("b")) == []
    assert named(rig.hear("a")) == ["a0", "a1"]


def test_counts_and_life_are_by_lite_topic() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0")
    rig.tell("b", "b0", "b1")
    rig.ack(*rig.hear("b", count=1), group="agents")
    [progress] = rig.engine.groups.describe("agents").topics
    assert progress.ready_count == 2
    assert rig.engine.progress.oldest_ready_ms("agents", "chat") == rig.now_ms
    group = rig.engine.catalog.require_group("agents")
    row = rig.engine.lites.row(group, "b")
    assert row is not None
    assert (row.unread_count, row.live_count) == (1, 0)
    assert rig.engine.lites.row(group, "c") is None


@pytest.mark.parametrize("to", ["same", "forwards", "backwards"])
def test_an_offset_moves_all_lite_topics(to: str) -> None:
    """A group's offset on a parent is the oldest that any of its lite topics was not given."""
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0")
    rig.tell("b", "b1", "b2")
    rig.tell("a", "a3", "a4")
    (a0,) = rig.hear("a", count=1)
    b1, b2 = rig.hear("b")
    assert rig.ack(b1, group="agents") == [True]
    queues = rig.engine.queues
    assert queues.committed("agents", "chat", 0) == 3
    offset = {"same": 3, "forwards": 4, "backwards": 2}[to]
    queues.commit("agents", "chat", 0, offset, rig.now_ms)
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before
    assert rig.engine.queues.committed("agents", "chat", 0) == offset
    if to == "backwards":
        assert rig.ack(b2, group="agents") == [False]
        assert named(rig.hear("b")) == ["b2"]
    else:
        assert rig.ack(b2, group="agents") == [True]
    assert rig.ack(a0, group="agents") == [True]
    assert named(rig.hear("a", "b")) == (["a4"] if to == "forwards" else ["a3", "a4"])


def test_an_offset_backwards_keeps_what_waits_of_a_lite_topic_that_is_gone() -> None:
    rig = LiteRig(store=short_store(retention_ms=MINUTE_MS))
    rig.make()
    rig.tell("old", "o0", body=b"x" * 1_000)
    rig.hear("old")
    for index in range(40):
        if index == 20:
            rig.advance(MINUTE_MS)
        rig.tell("new", f"n{index}", body=b"x" * 1_000)
    rig.retain()
    assert "old" not in rig.lite_topics()
    ends = rig.engine.queues.ends("chat", 0)
    rig.hear("new")
    rig.engine.queues.commit("agents", "chat", 0, ends.earliest_offset, rig.now_ms)
    assert named(rig.hear("old")) == ["o0"]


def test_what_cannot_be_asked_for() -> None:
    rig = LiteRig()
    rig.make()
    now_ms = rig.now_ms
    with pytest.raises(BadRequestError, match="one queue, not 2"):
        rig.engine.topics.create("two", TopicType.LITE, 2, now_ms)
    with pytest.raises(BadRequestError, match="one queue, not 2"):
        rig.engine.topics.alter("chat", None, 2, now_ms)
    with pytest.raises(BadRequestError, match="cannot become"):
        rig.engine.topics.alter("chat", TopicType.MIXED, 0, now_ms)
    rig.engine.topics.create("news", TopicType.LITE, 0, now_ms)
    with pytest.raises(IllegalTopicError, match="not of news"):
        rig.engine.lites.bind("agents", "news", now_ms)


def test_a_beginning_voids_what_was_given() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0", "a1")
    [first] = rig.hear("a", count=1)
    group = rig.engine.catalog.require_group("agents")
    rig.engine.lites.begin(group, ["a"], Beginning(Begin.FIRST), rig.now_ms)
    assert rig.ack(first, group="agents") == [False]
    assert named(rig.hear("a")) == ["a0", "a1"]


def test_expiry_is_in_the_record() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("a", "a0")
    payload = LitePayload(LITE_EXPIRED, 0, 1, ((lite_key("a"), 1), (lite_key("nothing"), 1)))
    rig.engine._journal.write(RecordType.LITE, payload, rig.now_ms)
    assert rig.hear("a") == []


def test_what_stands_behind_a_blocked_lite_topic_is_not_ready() -> None:
    rig = LiteRig()
    rig.make()
    rig.tell("one", "1a", "1b")
    rig.tell("two", "2a")
    assert len(rig.hear("one", count=1)) == 1
    [pair] = rig.engine.watched.pairs(10)
    assert (pair.lag.ready_count, pair.lag.held_count) == (1, 1)
