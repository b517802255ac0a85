"""What the broker itself withholds does not expire; what nobody asks for does."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.retention import withheld
from latermq_broker.engine.state.model import Delivered, OnDead, Outgoing, ReceiveRequest, TopicType
from latermq_broker.engine.views.message_life import LifeState
from latermq_broker.store.files import Space
from latermq_broker.store.records.lease_records import (
    NO_QUEUE,
    ORDERED_KEEP,
    LeaseOrderedPayload,
    OrderedRow,
    decode_lease_ordered,
    encode_lease_ordered,
)
from support.engine_facts import facts
from support.engine_rig import EngineRig, short_store
from support.recount import check_uses

MINUTE_MS = 60_000


class HoldRig(EngineRig):
    def __init__(
        self,
        *,
        held_max: int = 1_000,
        on_dead: OnDead = OnDead.PARK,
        unread_ms: int = MINUTE_MS,
    ) -> None:
        super().__init__(
            store=short_store(retention_ms=MINUTE_MS, unread_retention_ms=unread_ms),
            delivery=DeliveryConfig(held_messages_max=held_max, auto_renew_lease_ms=10 * MINUTE_MS),
        )
        self.engine.groups.create(
            "billing", fifo=True, max_attempts=0, backoff=None, on_dead=on_dead, now_ms=self.now_ms
        )

    def put(self, *names: str) -> None:
        """`a1` is of message group `a`."""
        messages = [
            Outgoing("orders", name.encode() * 20, name.encode(), name, message_group=name[0])
            for name in names
        ]
        self.engine.send(messages, self.now_ms)
        self.engine.write()

    def park(self, *names: str) -> None:
        """The first of the names dies of its message group, and parks it."""
        self.put(*names)
        (first,) = self.receive(count=1)
        self.engine.forward("billing", first.handle, self.now_ms)
        assert self.names() == []

    def expire(self, topic: str = "filler", *, full: bool = False) -> None:
        """Everything that may go goes; `full`: on a disk that is nearly full."""
        for step in range(80):
            if step == 40:
                self.advance(MINUTE_MS)
            self.send("f", topic=topic, body=b"x" * 1_000)
        if full:
            self.engine.store.disk.look(Space(8 << 20, 100 << 20))
        self.retain()
        assert self.engine.queues.ends("orders", 0).earliest_offset == 3
        check_uses(self.engine)

    def restarted(self, *, checkpoint: bool) -> None:
        if checkpoint:
            self.checkpoint()
        before = facts(self.engine)
        self.crash()
        assert facts(self.engine) == before
        check_uses(self.engine)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_is_held_behind_a_parked_message_comes_when_it_may(checkpoint: bool) -> None:
    rig = HoldRig()
    rig.park("a1", "a2", "a3")
    rig.expire()
    rig.restarted(checkpoint=checkpoint)
    assert rig.names() == []
    rig.put("a4")
    assert rig.names() == []
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    for name in (b"a2", b"a3", b"a4"):
        (one,) = rig.receive()
        assert (one.sys, one.rest, one.attempt) == (name, name * 20, 1)
        assert rig.ack(one) == [True]


def test_what_is_held_behind_a_lease_comes_when_it_may() -> None:
    rig = HoldRig(on_dead=OnDead.SKIP)
    rig.put("a1", "a2", "b3")
    (first,) = rig.receive(count=1, push=True)
    (other,) = rig.receive()
    assert rig.ack(other) == [True]
    rig.expire()
    assert rig.ack(first) == [True]
    assert rig.names() == ["a2"]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_no_receive_looked_at_is_kept_by_its_message_group(
    checkpoint: bool, full: bool
) -> None:
    """At the age for what is unread, and on a disk that is nearly full."""
    rig = HoldRig(on_dead=OnDead.SKIP, unread_ms=0 if full else MINUTE_MS)
    rig.put("a1", "a2", "b3")
    (first,) = rig.receive(count=1, push=True)
    rig.expire(full=full)
    assert rig.engine.retention.trims.entries_expired_unread == 1  # b3: nothing withheld it
    rig.restarted(checkpoint=checkpoint)
    assert rig.names() == []
    assert rig.ack(first) == [True]
    (second,) = rig.receive()
    assert (second.sys, second.rest, second.attempt) == (b"a2", b"a2" * 20, 1)


def test_what_waits_for_its_retry_keeps_those_behind_it_for_each_group() -> None:
    rig = HoldRig(on_dead=OnDead.SKIP)
    rig.engine.groups.create(
        "audit", fifo=True, max_attempts=0, backoff=None, now_ms=rig.now_ms, on_dead=OnDead.SKIP
    )
    rig.put("a1", "b2", "a3")
    (one,) = rig.receive("billing", count=1, lease_ms=10 * MINUTE_MS)
    rig.engine.change_invisible("billing", one.handle, 10 * MINUTE_MS, rig.now_ms)
    (other,) = rig.receive("audit", count=1, push=True)
    rig.expire()
    rig.restarted(checkpoint=False)
    assert rig.ack(other, group="audit") == [True]
    assert rig.names("audit") == ["a3"]
    rig.advance(10 * MINUTE_MS)
    assert rig.names("billing") == ["a1", "a3"]


def test_many_that_no_receive_looked_at_are_read_a_slice_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(withheld, "READS_MAX", 1)
    monkeypatch.setattr(withheld, "KEEP_ROWS", 1)
    rig = HoldRig(on_dead=OnDead.SKIP)
    rig.engine.retention.step_cost = 1
    rig.put("a1", "a2", "a3")
    (first,) = rig.receive(count=1, push=True)
    rig.expire()
    rig.restarted(checkpoint=False)
    assert rig.ack(first) == [True]
    assert rig.names() == ["a2", "a3"]


def test_what_no_receive_looked_at_is_bounded_too() -> None:
    rig = HoldRig(held_max=1, on_dead=OnDead.SKIP)
    rig.put("a1", "a2", "a3")
    (first,) = rig.receive(count=1, push=True)
    rig.expire()
    assert rig.engine.retention.trims.entries_expired_unread == 1
    assert rig.ack(first) == [True]
    assert rig.names() == ["a2"]


def test_what_may_go_on_and_is_not_asked_for_expires() -> None:
    rig = HoldRig(on_dead=OnDead.SKIP)
    rig.put("a1", "a2", "a3")
    (first,) = rig.receive(count=1)
    assert rig.names() == []
    assert rig.ack(first) == [True]
    before = rig.engine.retention.trims.entries_expired_unread
    rig.expire()
    assert rig.engine.retention.trims.entries_expired_unread == before + 2
    assert rig.names() == []


def test_what_is_kept_counts_for_what_is_held() -> None:
    """So that it is bounded: at the limit the group reads no further, and the rest expires."""
    rig = HoldRig(held_max=2)
    rig.park("a1", "a2", "a3")
    rig.expire()
    rig.put("a4", "b5")
    assert rig.names() == []  # a4 cannot be held, so b5 is not reached
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    assert rig.names() == ["a2", "b5"]


def test_many_are_kept_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withheld, "KEEP_ROWS", 1)
    rig = HoldRig()
    rig.park("a1", "a2", "a3")
    rig.engine.retention.step_cost = 1
    rig.expire()
    rig.restarted(checkpoint=False)
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    (one,) = rig.receive()
    rig.ack(one)
    assert rig.names() == ["a3"]


def test_a_filter_that_does_not_want_what_was_kept_passes_over_it() -> None:
    rig = HoldRig()
    rig.park("a1", "a2", "a3")
    rig.expire()
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    assert rig.names(tags="none") == []
    assert rig.engine.groups.dead_letter_count(rig.engine.catalog.require_group("billing")) == 0
    assert not rig.engine.message_groups.page("billing", "", None, 9)[0]


def test_the_story_tells_that_it_is_held() -> None:
    rig = HoldRig()
    rig.park("a1", "a2", "a3")
    rig.expire()
    (found,), _ = rig.engine.messages.by_id("a3", "orders")
    (life,) = rig.engine.lives.life(found).groups
    assert (life.state, life.ahead_count, life.parked) == (LifeState.HELD, 1, True)


def test_lite_topics_too() -> None:
    rig = HoldRig()
    rig.engine.topics.create("chat", TopicType.LITE, 0, rig.now_ms)
    rig.engine.lites.bind("agents", "chat", rig.now_ms)

    taken: list[Delivered] = []

    def hear() -> list[bytes]:
        request = ReceiveRequest(
            "agents", "chat", "c", 1, 1_000, lite_keys=frozenset({lite_key("room")})
        )
        got = rig.engine.receive(request, rig.now_ms)
        rig.engine.write()
        taken.extend(got)
        return [one.sys for one in got]

    rig.engine.send(
        [Outgoing("chat", b"x", b"%d" % n, f"{n}", lite_topic="room") for n in range(3)],
        rig.now_ms,
    )
    assert hear() == [b"0"]
    rig.engine.change_invisible("agents", taken[-1].handle, 10 * MINUTE_MS, rig.now_ms)
    rig.put("-1", "-2", "-3")
    rig.expire()
    assert rig.engine.queues.ends("chat", 0).earliest_offset == 3
    rig.restarted(checkpoint=False)
    assert hear() == []
    rig.advance(10 * MINUTE_MS)
    for name in (b"0", b"1", b"2"):
        assert hear() == [name]
        assert rig.ack(taken[-1], group="agents") == [True]
    assert [one.attempt for one in taken] == [1, 2, 1, 1]


def test_what_goes_unread_of_lite_topics_is_counted() -> None:
    """Neither what was given of other lite topics nor what is kept."""
    rig = HoldRig()
    rig.engine.topics.create("chat", TopicType.LITE, 0, rig.now_ms)
    rig.engine.lites.bind("agents", "chat", rig.now_ms)
    rooms = [f"{room}" for room in ("asked", "done", "held") for _ in range(3)]
    rig.engine.send(
        [Outgoing("chat", b"x", room.encode(), room, lite_topic=room) for room in sorted(rooms)],
        rig.now_ms,
    )
    for room, count in (("done", 3), ("held", 1)):
        keys = frozenset({lite_key(room)})
        for delivery in rig.engine.receive(
            ReceiveRequest("agents", "chat", "c", count, 20 * MINUTE_MS, lite_keys=keys), rig.now_ms
        ):
            if room == "done":
                assert rig.ack(delivery, group="agents") == [True]
    rig.put("-1", "-2", "-3")
    rig.expire()
    assert rig.engine.queues.ends("chat", 0).earliest_offset == 9
    assert rig.engine.retention.trims.entries_expired_unread == 3


def test_a_record_has_what_is_kept() -> None:
    golden = bytes.fromhex(
        "0500000000000000 0000000000000000 01000000 02000000 00000000 ffff 00 00 0000000000000000"
        "0900000000000000 0700000000000000 0300 04 0000000000"
    )
    payload = LeaseOrderedPayload(
        5, 0, 1, 2, 0, NO_QUEUE, 0, 0, (OrderedRow(9, 7, 3, ORDERED_KEEP),)
    )
    assert b"".join(encode_lease_ordered(payload)) == golden
    assert decode_lease_ordered(golden) == payload
