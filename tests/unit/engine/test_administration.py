"""Topics, groups, pending, dead letters, queue reads: what operators and bulk readers ask for."""

import pytest

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.config.config import CatalogConfig, DeliveryConfig
from latermq_broker.engine.state.model import (
    Backoff,
    DeadFilter,
    DeadState,
    Failure,
    PendingFilter,
    PendingKind,
    TagFilter,
    TopicType,
)
from latermq_broker.errors import (
    BadRequestError,
    ForbiddenError,
    GroupNotFoundError,
    IllegalOffsetError,
    MessageNotFoundError,
    PreconditionFailedError,
    RequestError,
    TooManyRequestsError,
    TopicNotFoundError,
)
from support.engine_facts import newest_letter
from support.engine_rig import EngineRig

ONE_ATTEMPT = DeliveryConfig(max_attempts=1)


def fixed(delay_ms: int) -> Backoff:
    return Backoff(kind=BackoffKind.FIXED, delays_ms=(delay_ms,))


def kill(rig: EngineRig, *names: str, text: str = "bad", topic: str = "orders") -> None:
    """Send messages and let them die at once in group billing."""
    rig.send(*names, topic=topic)
    for one in rig.receive(push=True, topic=topic):
        failure = Failure("ValueError", text, "", "")
        rig.engine.change_invisible("billing", one.handle, 1, rig.now_ms, failure=failure)
    rig.engine.write()


class TestTopics:
    def test_creating_the_same_again_is_fine_another_is_not(self) -> None:
        topics = (rig := EngineRig()).engine.topics
        made = topics.create("t", TopicType.DELAY, 3, rig.now_ms)
        assert topics.create("t", TopicType.DELAY, 3, rig.now_ms) == made
        assert topics.create("t", TopicType.DELAY, 0, rig.now_ms) == made
        for type, queue_count in ((TopicType.NORMAL, 3), (TopicType.DELAY, 4)):
            with pytest.raises(BadRequestError, match="exists"):
                topics.create("t", type, queue_count, rig.now_ms)

    @pytest.mark.parametrize("queue_count", [-1, 65])
    def test_queue_counts_are_bounded(self, queue_count: int) -> None:
        rig = EngineRig()
        with pytest.raises(BadRequestError, match="1 to 64"):
            rig.engine.topics.create("t", TopicType.MIXED, queue_count, rig.now_ms)

    def test_queues_grow_and_never_shrink(self) -> None:
        rig = EngineRig()
        rig.send("m1")
        assert rig.engine.topics.alter("orders", None, 4, rig.now_ms).queue_count == 4
        with pytest.raises(BadRequestError, match="shrink"):
            rig.engine.topics.alter("orders", None, 2, rig.now_ms)
        rig.crash()
        rig.send(*(f"n{n}" for n in range(4)))
        assert sorted(rig.names()) == ["m1", "n0", "n1", "n2", "n3"]

    def test_deleting_takes_everything_of_it_away(self) -> None:
        rig = EngineRig()
        old = rig.engine.ensure_topic("orders", rig.now_ms)
        rig.send("m1", "m2")
        rig.send("late", wait_ms=50)
        rig.receive(count=1)
        rig.engine.topics.delete("orders", rig.now_ms)
        with pytest.raises(TopicNotFoundError):
            rig.engine.topics.describe("orders")
        assert rig.engine.pending.count(PendingFilter()) == []
        rig.advance(100)
        rig.crash()
        rig.advance(0)
        assert rig.engine.next_deadline_ms() is None
        rig.send("new")
        assert rig.names() == ["new"]
        assert rig.engine.topics.describe("orders").topic.epoch != old.epoch

    def test_the_number_of_topics_is_bounded(self) -> None:
        rig = EngineRig(catalog=CatalogConfig(topic_count_max=2, default_queue_count=1))
        rig.send("m", topic="a")
        rig.send("m", topic="b")
        with pytest.raises(TooManyRequestsError, match="2 topics"):
            rig.send("m", topic="c")

    def test_dead_letter_topics_are_the_brokers(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "m1")
        with pytest.raises(ForbiddenError):
            rig.engine.topics.alter("%DLQ%billing", None, 2, rig.now_ms)


class TestGroups:
    @pytest.mark.parametrize(
        "backoff",
        [
            fixed(-1),
            Backoff(kind=BackoffKind.LADDER),
            Backoff(kind=BackoffKind.LADDER, delays_ms=(1,) * 65),
            Backoff(kind=BackoffKind.FIXED, delays_ms=(1,), jitter=1.5),
            Backoff(kind=BackoffKind.EXPONENTIAL, initial_ms=0, max_ms=10, multiplier=2),
            Backoff(kind=BackoffKind.EXPONENTIAL, initial_ms=9, max_ms=8, multiplier=2),
            Backoff(kind=BackoffKind.EXPONENTIAL, initial_ms=1, max_ms=8, multiplier=0.5),
        ],
    )
    def test_bad_policies_are_refused(self, backoff: Backoff) -> None:
        rig = EngineRig()
        with pytest.raises(BadRequestError):
            rig.engine.groups.create(
                "g", fifo=False, max_attempts=3, backoff=backoff, now_ms=rig.now_ms
            )
        assert rig.engine.catalog.group("g") is None

    def test_altering_replaces_what_is_given(self) -> None:
        groups = (rig := EngineRig()).engine.groups
        groups.create("g", fifo=False, max_attempts=3, backoff=fixed(5), now_ms=rig.now_ms)

        def alter(
            max_attempts: int = 0, backoff: Backoff | None = None, clear: bool = False
        ) -> tuple[int, Backoff | None]:
            group = groups.alter(
                "g",
                max_attempts=max_attempts,
                backoff=backoff,
                clear_backoff=clear,
                now_ms=rig.now_ms,
            )
            return group.max_attempts, group.backoff

        assert alter(max_attempts=7) == (7, fixed(5))
        assert alter(backoff=fixed(9)) == (7, fixed(9))
        assert alter(clear=True) == (7, None)

    def test_describe_counts_by_topic(self) -> None:
        rig = EngineRig(delivery=DeliveryConfig(max_attempts=2))
        rig.send("a", "b", "c", "d")
        one, two = rig.receive(count=2)
        rig.engine.change_invisible(
            "billing", one.handle, 500, rig.now_ms, failure=Failure("E", "", "", "")
        )
        (progress,) = rig.engine.groups.describe("billing").topics
        counts = progress.ready_count, progress.in_flight_count, progress.backoff_count
        assert counts == (2, 1, 1)
        assert progress.last_consumed_ms == rig.now_ms
        assert two.attempt == 1

    def test_deleting_forgets_progress_and_keeps_dead_letters(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "m1")
        rig.send("m2")
        rig.receive()
        rig.engine.groups.delete("billing", rig.now_ms)
        with pytest.raises(GroupNotFoundError):
            rig.engine.groups.describe("billing")
        assert newest_letter(rig.engine, "billing", "m1").reason == "attempts_exhausted"
        assert rig.names() == ["m1", "m2"]  # a new group of that name starts at the beginning

    def test_resetting_goes_back_and_forth_by_time(self) -> None:
        rig = EngineRig()
        rig.send("a")
        rig.advance(1_000)
        middle_ms = rig.now_ms
        rig.send("b")
        rig.advance(1_000)
        rig.send("c")
        held = rig.receive(lease_ms=60_000)
        reset = rig.engine.groups.reset
        assert reset("billing", "orders", middle_ms, rig.now_ms) == [1]
        assert rig.ack(*held) == [False] * 3  # running leases are void
        assert rig.names() == ["b", "c"]
        assert reset("billing", "orders", 0, rig.now_ms) == [0]
        assert reset("billing", "orders", rig.now_ms + 1, rig.now_ms) == [3]
        rig.crash()
        assert rig.names() == []


class TestPending:
    def test_everything_that_waits_by_due_time_and_by_page(self) -> None:
        rig = EngineRig()
        rig.send("held", "failed")
        rig.send("late1", wait_ms=70)
        rig.send("late2", wait_ms=3_000)
        held, failed = rig.receive(lease_ms=500)
        told = Failure("ValueError", "bad", "", "")
        rig.engine.change_invisible("billing", failed.handle, 90, rig.now_ms, failure=told)
        found = []
        token = ""
        while True:
            items, token = rig.engine.pending.page(PendingFilter(), 1, token)
            found += [(item.kind.name, item.sys.decode()) for item in items]
            if not token:
                break
        assert found == [
            ("DELAYED", "late1"),
            ("BACKOFF", "failed"),
            ("IN_FLIGHT", "held"),
            ("DELAYED", "late2"),
        ]
        (item,), _ = rig.engine.pending.page(PendingFilter(kind=PendingKind.BACKOFF), 10)
        assert item.failure == told
        assert (item.attempt, item.due_ms, item.group) == (1, rig.now_ms + 90, "billing")
        assert held.attempt == 1

    def test_ripe_retries_are_still_shown(self) -> None:
        rig = EngineRig()
        rig.send("m1")
        rig.receive(lease_ms=10)
        rig.advance(10)
        items, _ = rig.engine.pending.page(PendingFilter(topic="%RETRY%billing"), 10)
        assert [item.sys for item in items] == [b"m1"]
        (count,) = rig.engine.pending.count(PendingFilter(topic="%RETRY%billing"))
        assert (count.kind, count.count) == (PendingKind.BACKOFF, 1)

    def test_the_schedule_by_level(self) -> None:
        rig = EngineRig()
        rig.send("a", level=3)
        rig.send("b", level=4)
        schedule = PendingFilter(topic="SCHEDULE_TOPIC_XXXX", delay_level=4)
        items, _ = rig.engine.pending.page(schedule, 10)
        assert [item.sys for item in items] == [b"b"]
        both = PendingFilter(topic="SCHEDULE_TOPIC_XXXX")
        assert [count.count for count in rig.engine.pending.count(both)] == [2]

    def test_cancel_expedite_postpone_of_delayed_messages(self) -> None:
        rig = EngineRig()
        ids = [rig.send(name, wait_ms=1_000)[0].pending_id for name in ("a", "b", "c")]
        pending = rig.engine.pending
        pending.cancel(ids[0], rig.now_ms)
        pending.expedite("b", rig.now_ms)  # by message id
        pending.postpone(ids[2], rig.now_ms + 9_000, rig.now_ms)
        rig.crash()
        rig.advance(0)
        assert rig.names() == ["b"]
        rig.advance(8_999)
        assert rig.names() == ["b"]  # its lease ended; c is not due
        rig.advance(1)
        assert rig.names() == ["c"]
        for gone in (*ids, "a", "nobody", "d-zz-1", "r-77"):
            with pytest.raises(MessageNotFoundError):
                rig.engine.pending.cancel(gone, rig.now_ms)

    def test_cancel_and_expedite_of_retries(self) -> None:
        rig = EngineRig()
        rig.send("a", "b")
        for one in rig.receive(push=True):
            rig.engine.change_invisible("billing", one.handle, 60_000, rig.now_ms)
        rig.engine.pending.cancel("a", rig.now_ms)
        rig.engine.pending.expedite("b", rig.now_ms)
        rig.advance(0)
        (again,) = rig.receive()
        assert (again.sys, again.attempt) == (b"b", 2)
        with pytest.raises(PreconditionFailedError, match="in flight"):
            rig.engine.pending.cancel("b", rig.now_ms)

    @pytest.mark.parametrize("push", [True, False])
    def test_cancel_of_a_retry_whose_time_has_come(self, push: bool) -> None:
        rig = EngineRig()
        rig.send("a")
        (held,) = rig.receive(push=push, lease_ms=10)
        if push:
            rig.engine.change_invisible("billing", held.handle, 10, rig.now_ms)
        rig.advance(10)
        rig.engine.pending.cancel("a", rig.now_ms)
        assert rig.names() == []
        rig.crash()
        assert rig.names() == []
        assert rig.engine.pending.count(PendingFilter()) == []

    @pytest.mark.parametrize("token", ["x", "1-2", "zz-0-1"])
    def test_foreign_tokens_are_refused(self, token: str) -> None:
        with pytest.raises(BadRequestError, match="token"):
            EngineRig().engine.pending.page(PendingFilter(), 10, token)


class TestDeadLetters:
    def test_redriven_to_its_group_it_starts_again_and_remembers_its_lives(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "m1")
        rig.names("shipping")
        rig.advance(10)
        before = rig.engine.store.log.end
        rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
        assert rig.engine.store.log.end - before <= 120  # the body is not written again
        assert rig.engine.dead.get("billing", 0).state is DeadState.REDRIVEN
        assert rig.names("shipping") == []  # it was not theirs
        (one,) = rig.receive(lease_ms=100)
        assert (one.attempt, one.queue_offset) == (1, 0)
        redriven_ms = rig.now_ms
        rig.advance(100)
        letter = newest_letter(rig.engine, "billing", "m1")
        assert (letter.queue_offset, letter.redrive_count) == (1, 1)
        assert letter.redriven_ms == redriven_ms
        assert [(a.life, a.attempt, a.outcome.name) for a in letter.attempts] == [
            (1, 1, "NACK"),
            (2, 1, "EXPIRED"),
        ]
        with pytest.raises(PreconditionFailedError, match="redriven already"):
            rig.engine.dead.redrive("billing", 0, "", rig.now_ms)

    def test_redriven_to_a_topic_every_group_sees_it(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "m1")
        rig.engine.topics.create("again", TopicType.MIXED, 1, rig.now_ms)
        rig.engine.dead.redrive("billing", 0, "again", rig.now_ms)
        rig.crash()
        assert rig.names("g1", topic="again") == rig.names("g2", topic="again") == ["m1"]
        for target in ("nowhere", "%DLQ%billing"):
            kill(rig, target)
            offset = newest_letter(rig.engine, "billing", target).queue_offset
            with pytest.raises(RequestError):
                rig.engine.dead.redrive("billing", offset, target, rig.now_ms)

    def test_readers_of_the_topic_do_not_get_what_left_it(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "a", "b", "c")
        rig.engine.dead.drop("billing", [0], rig.now_ms)
        rig.engine.dead.redrive("billing", 1, "", rig.now_ms)
        assert rig.names("auditors", topic="%DLQ%billing") == ["c"]
        assert rig.engine.groups.describe("billing").dead_letter_count == 1

    def test_a_reader_that_fails_has_its_own_dead_letters(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "m1")
        rig.receive("auditors", topic="%DLQ%billing", lease_ms=10)
        rig.advance(10)
        letter = newest_letter(rig.engine, "auditors", "m1")
        assert (letter.origin_topic, letter.redrive_count) == ("%DLQ%billing", 0)
        assert len(letter.attempts) == 1

    def test_filters(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "a", text="no answer after 17 ms")
        first_ms = rig.now_ms
        rig.advance(10)
        kill(rig, "b", text="no answer after 4 ms")
        kill(rig, "c", text="refused", topic="invoices")
        dead = rig.engine.dead
        rig.engine.dead.drop("billing", [1], rig.now_ms)

        def names(filter: DeadFilter) -> str:
            return "".join(one.sys.decode() for one in dead.scan("billing", filter).letters)

        assert names(DeadFilter()) == "ac"
        assert names(DeadFilter(state=None)) == "abc"
        assert names(DeadFilter(state=DeadState.DROPPED)) == "b"
        signature = newest_letter(rig.engine, "billing", "b").signature
        assert names(DeadFilter(signature=signature)) == "a"
        assert names(DeadFilter(message_ids=frozenset({"c", "x"}))) == "c"
        assert names(DeadFilter(origin_topic="invoices")) == "c"
        assert names(DeadFilter(dead_before_ms=first_ms + 1)) == "a"
        assert names(DeadFilter(dead_after_ms=first_ms + 1)) == "c"
        assert names(DeadFilter(failure_class="ValueError", reason="attempts_exhausted")) == "ac"
        assert names(DeadFilter(reason="forwarded")) == ""

    def test_pages_forward_and_backward(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, *"abcdefg")
        for newest_first, expected in ((False, "abcdefg"), (True, "gfedcba")):
            found, start = "", -1
            while True:
                part = rig.engine.dead.scan(
                    "billing",
                    DeadFilter(),
                    start_offset=start,
                    count_max=3,
                    newest_first=newest_first,
                )
                found += "".join(one.sys.decode() for one in part.letters)
                start = part.next_offset
                if start < 0:
                    break
            assert found == expected

    def test_unknown_letters_and_groups(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        with pytest.raises(GroupNotFoundError):
            rig.engine.dead.scan("nobody", DeadFilter())
        kill(rig, "m1")
        for offset in (-1, 1, 99):
            with pytest.raises(MessageNotFoundError):
                rig.engine.dead.get("billing", offset)
            with pytest.raises(MessageNotFoundError):
                rig.engine.dead.drop("billing", [0, offset], rig.now_ms)
        assert newest_letter(rig.engine, "billing", "m1").state is DeadState.DEAD

    def test_a_life_too_long_to_keep_loses_its_oldest_stacks_first(self) -> None:
        rig = EngineRig(delivery=DeliveryConfig(max_attempts=12))
        rig.send("m1")
        for attempt in range(12):
            (one,) = rig.receive(push=True)
            failure = Failure("E", "text", "ab", f"{attempt}" + "s" * 8_000)
            rig.engine.change_invisible("billing", one.handle, 1, rig.now_ms, failure=failure)
            rig.advance(1)
        letter = newest_letter(rig.engine, "billing", "m1")
        stacks = [bool(a.failure and a.failure.stack) for a in letter.attempts]
        assert len(stacks) == 12
        assert not any(stacks[:7])
        assert all(stacks[-3:])
        assert all(a.failure and a.failure.text == "text" for a in letter.attempts)


class TestQueueReads:
    def test_pages_are_bounded_by_rows_and_bytes_and_complete(self) -> None:
        rig = EngineRig()
        rig.send(*(f"m{n}" for n in range(20)), body=b"x" * 1_000)
        epoch = rig.engine.topics.describe("orders").topic.epoch

        def read(start: int, rows_max: int, bytes_max: int) -> list[int]:
            rows = rig.engine.queues.read(
                "orders", epoch, 0, start, 20, rows_max=rows_max, bytes_max=bytes_max
            )
            return [row.queue_offset for row in rows]

        assert read(0, 5, 1 << 20) == [0, 1, 2, 3, 4]
        assert len(read(0, 100, 5_000)) == 4
        assert read(18, 100, 1) == [18]
        assert read(20, 100, 1) == []

    def test_what_cannot_be_read_is_said(self) -> None:
        rig = EngineRig()
        rig.send("m1")

        def read(topic: str, epoch: str, queue_id: int, start: int) -> None:
            rig.engine.queues.read(topic, epoch, queue_id, start, 9, rows_max=9, bytes_max=9)

        with pytest.raises(TopicNotFoundError):
            read("nothing", "", 0, 0)
        with pytest.raises(PreconditionFailedError, match="made anew"):
            read("orders", "0123", 0, 0)
        with pytest.raises(BadRequestError, match="queues 0 to 0"):
            read("orders", "", 1, 0)
        with pytest.raises(IllegalOffsetError) as caught:
            read("orders", "", 0, 2)
        assert (caught.value.earliest_offset, caught.value.next_offset) == (0, 1)

    def test_letters_carry_their_life(self) -> None:
        rig = EngineRig(delivery=ONE_ATTEMPT)
        kill(rig, "m1")
        rig.send("by hand", topic="%DLQ%billing")
        rows = rig.engine.queues.read("%DLQ%billing", "", 0, 0, 9, rows_max=9, bytes_max=9_999)
        assert rows[0].dead is not None
        assert rows[0].dead.failure == Failure("ValueError", "bad", "", "")
        assert rows[1].dead is None

    def test_offsets_by_time(self) -> None:
        rig = EngineRig()
        start_ms = rig.now_ms
        rig.send("a")
        rig.advance(100)
        rig.send("b")
        at = [
            rig.engine.queues.offset_at("orders", 0, start_ms + ms) for ms in (-1, 0, 1, 100, 101)
        ]
        assert at == [0, 0, 1, 1, 2]

    def test_pulling_leases_nothing_and_filters(self) -> None:
        rig = EngineRig()
        for tag in "abab":
            rig.send(f"{tag}", tag=tag)
        rows, next_offset = rig.engine.queues.pull("orders", 0, 0, 10, TagFilter(frozenset("b")))
        assert [row.queue_offset for row in rows] == [1, 3]
        assert next_offset == 4
        rows, next_offset = rig.engine.queues.pull("orders", 0, 1, 2)
        assert ([row.queue_offset for row in rows], next_offset) == ([1, 2], 3)
        assert len(rig.names()) == 4

    def test_committed_offsets_move_where_the_group_reads(self) -> None:
        rig = EngineRig()
        rig.send("a", "b", "c")
        queues = rig.engine.queues
        rig.engine.ensure_group("billing", rig.now_ms)
        assert queues.committed("billing", "orders", 0) is None
        queues.commit("billing", "orders", 0, 2, rig.now_ms)
        rig.engine.write()
        rig.crash()
        assert rig.engine.queues.committed("billing", "orders", 0) == 2
        assert rig.names() == ["c"]
        with pytest.raises(IllegalOffsetError):
            rig.engine.queues.commit("billing", "orders", 0, 4, rig.now_ms)
        with pytest.raises(GroupNotFoundError):
            rig.engine.queues.commit("nobody", "orders", 0, 0, rig.now_ms)
