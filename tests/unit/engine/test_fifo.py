"""FIFO groups on the engine: each rule once. All of them at random: `test_engine_model`."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.config.core_bounds import ScanBounds
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.engine.receive import repeated_replies
from latermq_broker.engine.state.model import (
    DeadFilter,
    Delivered,
    Failure,
    OnDead,
    Outgoing,
    PendingFilter,
    ReceiveRequest,
    TagFilter,
    TopicType,
)
from latermq_broker.engine.state.state import EngineState
from latermq_broker.engine.views.message_groups import MessageGroupState
from latermq_broker.errors import BadRequestError
from latermq_broker.store.records.record import Record
from support.engine_rig import EngineRig

FAILURE = Failure("ValueError", "bad", "", "")


class FifoRig(EngineRig):
    def __init__(
        self,
        *,
        on_dead: OnDead = OnDead.SKIP,
        attempts: int = 4,
        held_max: int = 1_000,
        bounds: ScanBounds | None = None,
    ) -> None:
        delivery = DeliveryConfig(
            max_attempts=attempts,
            held_messages_max=held_max,
            bounds=bounds or ScanBounds(),
        )
        super().__init__(delivery=delivery)
        self.engine.groups.create(
            "billing",
            fifo=True,
            max_attempts=0,
            backoff=None,
            on_dead=on_dead,
            now_ms=self.now_ms,
        )

    def put(self, *names: str) -> None:
        """`a1` is of message group `a`; `-1` of none."""
        messages = [
            Outgoing("orders", b"x", name.encode(), name, message_group=name[0].strip("-"))
            for name in names
        ]
        self.engine.send(messages, self.now_ms)
        self.engine.write()

    def nack(self, one: Delivered, wait_ms: int = 1_000) -> None:
        self.engine.change_invisible("billing", one.handle, wait_ms, self.now_ms, failure=FAILURE)
        self.engine.write()

    def attempts(self) -> list[tuple[str, int]]:
        return [(one.sys.decode(), one.attempt) for one in self.receive()]


def test_a_batch_has_several_of_a_message_group_in_order() -> None:
    rig = FifoRig()
    rig.put("a1", "b1", "a2", "-1", "a3")
    assert rig.names() == ["a1", "b1", "a2", "-1", "a3"]


def test_only_the_message_group_is_blocked() -> None:
    rig = FifoRig()
    rig.put("a1", "a2", "b1", "-1", "-2", "a3")
    (first,) = rig.receive(count=1)
    assert rig.names() == ["b1", "-1", "-2"]
    assert rig.names() == []
    rig.ack(first)
    assert rig.names() == ["a2", "a3"]


def test_acked_in_any_order_the_rest_comes_again_in_order() -> None:
    rig = FifoRig()
    rig.put("a1", "a2", "a3", "a4")
    batch = rig.receive()
    rig.ack(batch[2])
    rig.ack(batch[0])
    rig.put("a5")
    assert rig.names() == []
    rig.advance(1_000)
    assert rig.attempts() == [("a2", 2), ("a4", 2), ("a5", 1)]


def test_after_a_nack_the_message_group_waits_for_its_backoff() -> None:
    rig = FifoRig()
    rig.put("a1", "b1")
    rig.nack(rig.receive(count=1)[0], 5_000)
    rig.put("a2")
    assert rig.names() == ["b1"]
    rig.advance(4_999)
    assert rig.names() == ["b1"]  # its lease ended
    rig.advance(1)
    assert rig.attempts() == [("a1", 2), ("a2", 1)]


def test_in_single_file_a_reply_has_one_of_each_message_group() -> None:
    """Fresh, held back, and when they come again."""
    rig = FifoRig()
    rig.put("a1", "b1", "a2", "-1", "a3", "-2")
    first, *others = rig.receive(single_file=True)
    assert [one.sys for one in (first, *others)] == [b"a1", b"b1", b"-1", b"-2"]
    rig.nack(first)
    assert rig.receive(single_file=True) == []
    rig.advance(1_000)
    (again,) = (one for one in rig.receive(single_file=True) if one.sys.startswith(b"a"))
    assert (again.sys, again.attempt) == (b"a1", 2)
    rig.ack(again)
    assert [one.sys for one in rig.receive(single_file=True)] == [b"a2"]


def test_from_the_third_attempt_on_alone_so_that_the_innocent_live() -> None:
    rig = FifoRig()
    rig.put("a1", "a2")
    seen = []
    for _ in range(4):
        seen.append(rig.attempts())
        rig.advance(1_000)
    assert seen == [[("a1", 1), ("a2", 1)], [("a1", 2), ("a2", 2)], [("a1", 3)], [("a1", 4)]]
    letters = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert [letter.sys for letter in letters] == [b"a1"]
    (last,) = rig.receive()
    assert (last.sys, last.attempt) == (b"a2", 3)


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_last_attempt_is_alone(attempts: int) -> None:
    rig = FifoRig(attempts=attempts)
    rig.put("a1", "a2")
    for _ in range(attempts):
        rig.receive()
        rig.advance(1_000)
    (letter,) = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert letter.sys == b"a1"
    assert rig.attempts() == [("a2", attempts)]


def test_dead_ones_are_skipped_or_park() -> None:
    rig = FifoRig()
    rig.put("a1", "a2")
    rig.engine.forward("billing", rig.receive(count=1)[0].handle, rig.now_ms, FAILURE)
    assert rig.names() == ["a2"]
    rig = FifoRig(on_dead=OnDead.PARK)
    rig.put("a1", "a2", "b1")
    batch = rig.receive()
    assert [one.sys for one in batch] == [b"a1", b"b1"]
    rig.engine.forward("billing", batch[0].handle, rig.now_ms, FAILURE)
    assert rig.names() == []
    for _ in range(2):
        (letter,) = rig.engine.dead.scan("billing", DeadFilter()).letters
        assert letter.parks
        ((row,), _) = rig.engine.message_groups.page("billing", "", MessageGroupState.PARKED, 9)
        assert (row.letters, row.held_count, row.sys) == ((0,), 1, b"a2")
        rig.crash()
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    (again,) = rig.receive()
    assert (again.sys, again.attempt) == (b"a1", 1)
    assert not rig.engine.dead.get("billing", 0).parks
    rig.ack(again)
    assert "a2" in rig.names()


@pytest.mark.parametrize("how", ["drop", "to topic", "topic deleted", "reset"])
def test_what_ends_parking(how: str) -> None:
    rig = FifoRig(on_dead=OnDead.PARK)
    rig.put("a1", "a2")
    rig.engine.forward("billing", rig.receive()[0].handle, rig.now_ms, FAILURE)
    if how == "drop":
        rig.engine.dead.drop("billing", [0], rig.now_ms)
    elif how == "to topic":
        rig.engine.ensure_topic("other", rig.now_ms)
        rig.engine.dead.redrive("billing", 0, "other", rig.now_ms)
    elif how == "topic deleted":
        rig.engine.topics.delete("%DLQ%billing", rig.now_ms)
    else:
        rig.engine.groups.reset("billing", "orders", 0, rig.now_ms)
    rig.crash()
    assert rig.names() == (["a1"] if how == "reset" else ["a2"])
    assert rig.engine._state.parking == {}


def test_a_letter_sent_to_a_topic_keeps_its_message_group() -> None:
    rig = FifoRig()
    rig.put("a1")
    rig.engine.forward("billing", rig.receive()[0].handle, rig.now_ms, FAILURE)
    rig.engine.topics.alter("orders", None, 7, rig.now_ms)
    rig.put("a2")
    (held,) = rig.receive()
    rig.engine.dead.redrive("billing", 0, "orders", rig.now_ms)
    assert rig.names() == []
    rig.ack(held)
    assert rig.names() == ["a1"]


def test_more_queues_leave_message_groups_where_they_are() -> None:
    rig = FifoRig()
    names = [f"{letter}{number}" for number in range(3) for letter in "abcdef"]
    rig.put(*names[:6])
    rig.engine.topics.alter("orders", None, 5, rig.now_ms)
    rig.crash()
    rig.put(*names[6:])
    assert [name for name in rig.names() if name[0] == "a"] == ["a0", "a1", "a2"]
    topic = rig.engine.catalog.topic("orders")
    assert topic is not None
    assert (topic.queue_count, topic.queue_of(hash64("a"))) == (5, 0)


def test_the_same_attempt_id_is_answered_with_the_same() -> None:
    rig = FifoRig()
    rig.put("a1", "a2", "b1")
    request = ReceiveRequest("billing", "orders", "client-1", 2, 1_000, attempt_id="try-1")
    first = rig.engine.receive(request, rig.now_ms)
    rig.advance(900)
    again = rig.engine.receive(request, rig.now_ms)
    assert [(one.sys, one.attempt) for one in again] == [(b"a1", 1), (b"a2", 1)]
    assert [one.handle for one in again] == [one.handle for one in first]
    rig.advance(900)  # the lease began anew
    assert rig.ack(again[0]) == [True]
    assert [one.sys for one in rig.engine.receive(request, rig.now_ms)] == [b"a2"]
    other = request._replace(client_id="client-2")
    assert [one.sys for one in rig.engine.receive(other, rig.now_ms)] == [b"b1"]
    rig.advance(2_000)
    assert [one.attempt for one in rig.engine.receive(request, rig.now_ms)] == [2, 2]


def test_in_groups_without_order_an_attempt_id_is_answered_with_the_same_too() -> None:
    rig = FifoRig()
    rig.put("a1", "a2")
    request = ReceiveRequest("any", "orders", "client-1", 1, 1_000, attempt_id="try-1")
    (first,) = rig.engine.receive(request, rig.now_ms)
    (again,) = rig.engine.receive(request, rig.now_ms)
    assert (again.sys, again.attempt, again.handle) == (b"a1", 1, first.handle)
    assert rig.engine.ack("any", [again.handle], rig.now_ms) == [None]
    assert rig.engine.receive(request, rig.now_ms)[0].sys == b"a2"


def test_attempt_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_replies, "ATTEMPT_IDS_MAX", 2)
    rig = FifoRig()
    rig.put("a1", "b1", "c1")
    request = ReceiveRequest("billing", "orders", "client-1", 1, 1_000)
    for number in range(3):
        rig.engine.receive(request._replace(attempt_id=f"{number}" * 1_000), rig.now_ms)
    assert len(rig.engine._lanes._replies) == 2
    assert rig.engine.receive(request._replace(attempt_id="0" * 1_000), rig.now_ms) == []


def test_what_is_given_back_keeps_its_place() -> None:
    rig = FifoRig()
    rig.put("a1", "a2")
    rig.engine.give_back("billing", [one.handle for one in rig.receive()], rig.now_ms)
    assert rig.names() == []
    rig.advance(1_000)
    assert rig.attempts() == [("a1", 1), ("a2", 1)]


def test_what_is_filtered_out_is_passed_by_held_or_not() -> None:
    rig = FifoRig()
    tagged = [
        Outgoing("orders", b"x", f"{tag}{n}".encode(), f"{n}", tag=tag, message_group="k")
        for n, tag in enumerate("xyxy")
    ]
    rig.engine.send(tagged[:1], rig.now_ms)
    (first,) = rig.receive()
    rig.engine.send(tagged[1:], rig.now_ms)
    assert rig.names() == []
    rig.ack(first)
    assert rig.names(tags="x") == ["x2"]
    rig.crash()
    rig.advance(1_000)
    assert rig.names(tags="y") == []
    assert rig.names() == ["x2"]
    group = rig.engine._state.subscriptions[1, 1].ordered().groups[hash64("k")]
    assert len(group.held) == 0


def test_a_full_gate_reads_on_when_something_goes_on() -> None:
    rig = FifoRig(held_max=2)
    rig.put("a1", "a2", "a3", "a4", "b1")
    (first,) = rig.receive(count=1)
    for _ in range(2):
        rig.engine.take_ready()
        assert rig.names() == []
    assert not rig.engine.take_ready().pairs  # nothing to ask for again
    rig.ack(first)
    assert [name for _ in range(3) for name in rig.names()] == ["a2", "a3", "a4", "b1"]


@pytest.mark.parametrize("bound", ["ordered_entries_max", "held_reads_max", "held_read_bytes_max"])
def test_a_receive_looks_at_a_slice_and_is_asked_again(bound: str) -> None:
    rig = FifoRig()
    rig.put("a0")
    length = rig.engine._state.queue(1, 0).get(0).length
    rig = FifoRig(bounds=ScanBounds(**{bound: 4 * length if "bytes" in bound else 4}))
    rig.put("a0", "a1")
    rig.receive()
    rig.put(*(f"a{n}" for n in range(2, 14)), "b1")
    rig.engine.take_ready()
    asked = 0
    while not (names := rig.names()):
        assert rig.engine.take_ready().pairs == {("billing", "orders")}
        asked += 1
    assert (names, asked) == (["b1"], 3)


@pytest.mark.parametrize("queue_count", [1, 4])
def test_all_queues_share_what_one_receive_reads(
    queue_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = FifoRig(bounds=ScanBounds(held_reads_max=4))
    rig.engine.topics.create("many", TopicType.MIXED, queue_count, rig.now_ms)
    groups = [f"group {n}" for n in range(16)]

    def put() -> None:
        messages = [Outgoing("many", b"x", b"s", "id", message_group=group) for group in groups]
        rig.engine.send(messages, rig.now_ms)

    put()
    assert len(rig.receive(topic="many")) == 16
    put()
    rig.engine.take_ready()
    reads = counted_reads(monkeypatch)
    for _ in range(4):
        assert not rig.receive(topic="many")
        assert rig.engine.take_ready().pairs == {("billing", "many")}
    assert len(reads) == 16
    assert not rig.receive(topic="many")
    assert not rig.engine.take_ready().pairs


def test_what_is_delivered_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = FifoRig()
    rig.put("a1", "a2", "b1", "-1")
    reads = counted_reads(monkeypatch)
    assert rig.names() == ["a1", "a2", "b1", "-1"]
    assert len(reads) == len(set(reads)) == 4


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of what the engine reads from here on."""
    reads: list[int] = []
    read = EngineState.read

    def counted(state: EngineState, position: int) -> Record:
        reads.append(position)
        return read(state, position)

    monkeypatch.setattr(EngineState, "read", counted)
    return reads


def test_keys_that_are_idle_leave_nothing_behind() -> None:
    rig = FifoRig()
    for n in range(100):
        rig.engine.send(
            [Outgoing("orders", b"x", b"s", f"{n}", message_group=f"key-{n}")], rig.now_ms
        )
    while batch := rig.receive():
        rig.ack(*batch)
    gate = rig.engine._state.subscriptions[1, 1].ordered()
    assert (gate.groups, gate.runnable, gate.held_count) == ({}, {}, 0)


def test_a_tighter_policy_buries_what_is_over_it() -> None:
    rig = FifoRig(attempts=9)
    rig.put("a1", "a2", "b1")
    for _ in range(4):
        rig.receive()
        rig.advance(1_000)
    rig.engine.groups.alter(
        "billing", max_attempts=3, backoff=None, clear_backoff=False, now_ms=rig.now_ms
    )
    assert [name for _ in "123" for name in rig.names()] == ["a2"]
    letters = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert sorted(letter.sys for letter in letters) == [b"a1", b"b1"]


def test_a_commit_of_the_offset_lets_go_of_what_is_held() -> None:
    rig = FifoRig()
    rig.put("a1", "a2", "a3")
    (first,) = rig.receive(count=1)
    rig.names()
    rig.engine.queues.commit("billing", "orders", 0, 2, rig.now_ms)
    rig.ack(first)
    assert rig.names() == ["a3"]


def test_what_blocks_and_what_waits() -> None:
    rig = FifoRig()
    rig.put("a1", "b1", "c1", "c2")
    batch = rig.receive(count=2)
    rig.nack(batch[1], 7_000)
    held = rig.receive(count=1)
    rig.put("a2", "a3")
    rig.names()
    rows, token = rig.engine.message_groups.page("billing", "orders", None, 2)
    more, end = rig.engine.message_groups.page("billing", "", None, 2, token)
    found = {row.sys[:1]: row for row in [*rows, *more]}
    assert (token != "", end) == (True, "")
    a, b, c = (found[key] for key in (b"a", b"b", b"c"))
    assert (a.state, a.due_ms, a.held_count) == (MessageGroupState.IN_FLIGHT, rig.now_ms + 1_000, 2)
    assert (b.state, b.due_ms, b.attempt) == (MessageGroupState.BACKOFF, rig.now_ms + 7_000, 1)
    assert (c.sys, c.held_count) == (b"c1", 1)
    info = rig.engine.groups.describe("billing").topics[0]
    assert (info.ready_count, info.held_count, info.blocked_count, info.parked_count) == (
        3,
        3,
        3,
        0,
    )
    rig.engine.pending.cancel(b.pending_id, rig.now_ms)
    rig.ack(*held)
    rows, _ = rig.engine.message_groups.page("billing", "", MessageGroupState.READY, 9)
    assert [(row.sys, row.live_count) for row in rows] == [(b"c2", 0)]
    with pytest.raises(BadRequestError, match="page token"):
        rig.engine.message_groups.page("billing", "", None, 2, "x")


def test_ready_retries_of_a_message_group_are_pending() -> None:
    rig = FifoRig()
    rig.put("a1")
    rig.nack(rig.receive()[0])
    rig.advance(5_000)
    (item,), _ = rig.engine.pending.page(PendingFilter(), 9)
    rig.engine.pending.cancel(item.pending_id, rig.now_ms)
    assert rig.names() == []


def test_only_an_ordered_group_can_park() -> None:
    rig = FifoRig()
    with pytest.raises(BadRequestError, match="only a fifo group can park"):
        rig.engine.groups.create(
            "any",
            fifo=False,
            max_attempts=0,
            backoff=None,
            on_dead=OnDead.PARK,
            now_ms=rig.now_ms,
        )


def test_a_filter_does_not_hide_the_head_of_a_message_group() -> None:
    rig = FifoRig()
    message = Outgoing("orders", b"x", b"x1", "x1", tag="x", message_group="k")
    rig.engine.send([message], rig.now_ms)
    rig.receive()
    rig.engine.send([message._replace(sys=b"y1", tag="y", message_id="y1")], rig.now_ms)
    rig.advance(1_000)
    request = ReceiveRequest("billing", "orders", "c", 9, 1_000, filter=TagFilter(frozenset({"y"})))
    assert rig.engine.receive(request, rig.now_ms) == []
    assert rig.names() == ["x1", "y1"]
