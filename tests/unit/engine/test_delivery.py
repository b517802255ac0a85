"""One message's life, clause by clause (design: delivery table; protocol: 5 and 6)."""

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.catalog.catalog import Backoff, BackoffKind
from latermq_broker.config.config import CatalogConfig, DeliveryConfig, StoreConfig
from latermq_broker.engine.state.model import Failure, TopicType
from latermq_broker.errors import (
    GroupNotFoundError,
    InvalidReceiptHandleError,
    StoreFullError,
    TopicNotFoundError,
    UnsupportedFormatError,
)
from support.engine_facts import newest_letter
from support.engine_rig import SMALL_STORE, EngineRig, until_full
from support.memory_files import MemoryFiles
from support.small_bounds import SMALL_RUNS, bounded

MIB = 1 << 20
FAILED = Failure("TimeoutError", "no answer from 10.0.0.7", "ab", "stack")


def test_a_message_is_leased_once_per_group_and_gone_after_the_ack() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive()
    assert (one.attempt, one.queue_offset, one.deadline_ms) == (1, 0, rig.now_ms + 1_000)
    assert rig.receive() == []
    assert rig.names("shipping") == ["m1"]
    assert rig.ack(one) == [True]
    rig.advance(60_000)
    assert rig.receive() == []


def test_an_expired_lease_comes_back_at_its_deadline_and_not_before() -> None:
    rig = EngineRig()
    rig.send("m1")
    (first,) = rig.receive(lease_ms=250)
    rig.advance(249)
    assert rig.receive() == []
    rig.advance(1)
    (second,) = rig.receive()
    assert second.attempt == 2
    assert rig.ack(first) == [False]
    assert rig.ack(second) == [True]


def test_an_ack_counts_as_given_only_before_the_deadline() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(lease_ms=100)
    rig.now_ms += 100  # the tick has not run yet
    assert rig.ack(one) == [False]


def test_repeated_acks_are_fine_within_the_lease_only() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(lease_ms=1_000)
    assert rig.ack(one, one) == [True, True]
    rig.advance(999)
    assert rig.ack(one) == [True]
    rig.advance(1)
    assert rig.ack(one) == [False]


def test_extending_kills_the_old_handle() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(lease_ms=1_000)
    new = rig.engine.change_invisible("billing", one.handle, 5_000, rig.now_ms)
    assert rig.ack(one) == [False]
    rig.advance(4_999)
    assert rig.receive() == []
    assert rig.engine.ack("billing", [new], rig.now_ms) == [None]


@pytest.mark.parametrize("handle", ["", "junk", "0" * 40])
def test_a_bad_handle_changes_nothing(handle: str) -> None:
    rig = EngineRig()
    rig.send("m1")
    rig.receive()
    end = rig.engine.store.log.end
    with pytest.raises(InvalidReceiptHandleError):
        rig.engine.change_invisible("billing", handle, 1, rig.now_ms)
    with pytest.raises(InvalidReceiptHandleError):
        rig.engine.forward("billing", handle, rig.now_ms)
    assert rig.engine.store.log.end == end


def test_another_groups_handle_is_not_ours() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive("billing")
    rig.receive("shipping")
    assert rig.ack(one, group="shipping") == [False]
    assert rig.ack(one) == [True]
    assert rig.ack(one, group="shipping") == [False]  # done, but not theirs


def test_suspending_does_not_count_the_attempt() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True)
    rig.engine.change_invisible("billing", one.handle, 500, rig.now_ms, suspend=True)
    rig.advance(500)
    (again,) = rig.receive()
    assert again.attempt == 1


def test_a_push_consumers_change_is_a_nack_and_waits_as_asked() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True)
    rig.engine.change_invisible("billing", one.handle, 300, rig.now_ms)
    rig.advance(299)
    assert rig.receive() == []
    rig.advance(1)
    assert [one.attempt for one in rig.receive()] == [2]


def test_the_groups_ladder_wins_over_what_the_client_asks() -> None:
    rig = EngineRig()
    ladder = Backoff(kind=BackoffKind.LADDER, delays_ms=(100, 700))
    rig.engine.groups.create(
        "billing", fifo=False, max_attempts=5, backoff=ladder, now_ms=rig.now_ms
    )
    rig.send("m1")
    for wait_ms in (100, 700, 700):
        (one,) = rig.receive(push=True)
        rig.engine.change_invisible("billing", one.handle, 5, rig.now_ms)
        rig.advance(wait_ms - 1)
        assert rig.receive() == []
        rig.advance(1)
    (last,) = rig.receive()
    assert last.attempt == 4


def test_exhausted_messages_die_with_nobody_connected_and_tell_their_life() -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=3))
    rig.send("m1", body=b"the body")
    (one,) = rig.receive(push=True, lease_ms=1_000)
    rig.advance(40)
    rig.engine.change_invisible("billing", one.handle, 500, rig.now_ms, failure=FAILED)
    rig.advance(500)
    rig.receive(lease_ms=200, client="client-2")
    rig.advance(200)
    rig.receive(lease_ms=100)
    rig.advance(100)
    letter = newest_letter(rig.engine, "billing", "m1")
    assert (letter.reason, letter.attempt_count, letter.max_attempts) == (
        "attempts_exhausted",
        3,
        3,
    )
    told = [
        (a.attempt, a.client_id, a.outcome.name, a.ended_ms - a.started_ms, a.backoff_ms)
        for a in letter.attempts
    ]
    assert told == [
        (1, "client-1", "NACK", 40, 500),
        (2, "client-2", "EXPIRED", 200, 0),
        (3, "client-1", "EXPIRED", 100, 0),
    ]
    assert letter.attempts[0].failure == FAILED
    assert letter.failure == FAILED._replace(stack="")
    assert len(letter.signature) == 16
    assert (letter.rest, letter.sys) == (b"the body", b"m1")
    (read,) = rig.receive("auditors", topic="%DLQ%billing")
    assert (read.attempt, read.dead_origin_topic, read.rest) == (1, "orders", b"the body")


def test_a_late_heartbeat_keeps_a_push_lease_and_a_gone_client_loses_it() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=60_000)
    for _ in range(30):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)
        assert rig.receive("billing", client="other") == []
    rig.engine.client_gone("client-1", rig.now_ms)
    rig.advance(999)
    assert rig.receive() == []
    rig.advance(1)
    assert [again.attempt for again in rig.receive()] == [2]
    assert rig.ack(one) == [False]


def test_a_lease_whose_reply_a_crash_may_have_eaten_is_not_renewed_for_hours() -> None:
    rig = EngineRig()
    rig.send("known")
    rig.receive(push=True, lease_ms=60_000)
    for _ in range(6):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)  # renewed once: its client works on it
    rig.send("lost")
    rig.receive(push=True, lease_ms=60_000)
    rig.advance(1)
    rig.crash()
    for _ in range(12):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)
    assert [(one.sys, one.attempt) for one in rig.receive()] == [(b"lost", 2)]


def test_the_original_handle_outlives_renewals() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=60_000)
    for _ in range(12):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)
    assert rig.ack(one) == [True]


def test_a_silent_push_client_loses_its_lease() -> None:
    rig = EngineRig()
    rig.advance(600_000)  # long after the start, when clients are given time to show up
    rig.send("m1")
    rig.receive(push=True, lease_ms=60_000)
    rig.advance(300_000)
    rig.advance(300_000)
    assert [again.attempt for again in rig.receive(client="other")] == [2]


def test_what_did_not_reach_its_client_comes_back_uncounted() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(lease_ms=60_000)
    rig.engine.give_back("billing", [one.handle], rig.now_ms)
    rig.advance(1_000)
    assert [again.attempt for again in rig.receive()] == [1]


@pytest.mark.parametrize("push", [True, False])
def test_a_retry_costs_at_most_192_bytes_of_log_whatever_the_body(push: bool) -> None:
    rig = EngineRig(store=StoreConfig(segment_bytes=16 * MIB, message_body_bytes_max=2 * MIB))
    rig.send("m1", body=bytes(MIB))
    (one,) = rig.receive(push=push, client="host@12345@0@0123456789abcdef")
    rig.ack()
    for attempt in range(2, 8):
        before = rig.engine.store.log.end
        if push:
            rig.engine.change_invisible("billing", one.handle, 10, rig.now_ms)
        else:  # a simple consumer's way to fail: shorten the lease, let it end
            rig.engine.change_invisible("billing", one.handle, 1, rig.now_ms)
        rig.advance(10)
        (one,) = rig.receive(push=push, client="host@12345@0@0123456789abcdef")
        assert one.attempt == attempt
        assert rig.engine.store.log.end - before <= 192


def test_neither_lane_starves_the_other() -> None:
    rig = EngineRig()
    rig.send(*(f"old{n}" for n in range(40)))
    rig.receive(count=32, lease_ms=10)
    rig.receive(count=32, lease_ms=10)
    rig.advance(10)  # 40 retries are ready
    rig.send(*(f"new{n}" for n in range(40)))
    names = [one.sys.decode() for one in rig.receive(count=32)]
    assert sum(name.startswith("old") for name in names) == 8
    assert sum(name.startswith("new") for name in names) == 24
    singles = [rig.receive(count=1)[0].sys.decode()[:3] for _ in range(16)]
    assert singles.count("old") == 4
    assert len(rig.receive(count=32)) == 32  # an empty lane leaves its share to the other


def test_one_reply_is_bounded_in_bytes_and_a_first_message_always_goes() -> None:
    rig = EngineRig(delivery=DeliveryConfig(receive_bytes_max=100_000))
    rig.send(*(f"m{n}" for n in range(5)), body=b"x" * 40_000)
    assert [len(rig.receive(lease_ms=10)) for _ in range(3)] == [2, 2, 1]
    rig.advance(10)  # retries too
    assert [len(rig.receive(tags="")) for _ in range(3)] == [2, 2, 1]
    one_byte = EngineRig(delivery=DeliveryConfig(receive_bytes_max=1))
    one_byte.send("a", "b")
    assert one_byte.names() == ["a"]
    assert one_byte.names() == ["b"]


def test_a_push_client_that_can_name_no_wait_gets_the_brokers_ladder() -> None:
    rig = EngineRig(delivery=DeliveryConfig(delay_levels_ms=(5, 10, 100, 700)))
    rig.send("m1")
    for wait_ms in (100, 700, 700):
        (one,) = rig.receive(push=True)
        rig.engine.change_invisible("billing", one.handle, 0, rig.now_ms)
        rig.advance(wait_ms - 1)
        assert rig.receive() == []
        rig.advance(1)
    (one,) = rig.receive(push=True)
    rig.engine.change_invisible("billing", one.handle, 0, rig.now_ms, failure=FAILED)
    rig.advance(0)  # one that says why means what it says
    assert [one.attempt for one in rig.receive()] == [5]


def test_filtered_messages_are_consumed_and_retries_are_filtered_too() -> None:
    rig = EngineRig()
    rig.send("a1", tag="a")
    rig.send("b1", tag="b")
    rig.send("none")
    assert rig.names(tags="b c") == ["b1"]
    rig.advance(1_000)
    assert rig.names(tags="a") == []  # b1 waits for somebody who wants it
    assert rig.names() == ["b1"]  # "none" was passed over: a filtered message is consumed
    assert rig.names("other", tags="a") == ["a1"]


def test_a_filter_that_matches_nothing_gets_through_a_long_queue() -> None:
    rig = EngineRig()
    for start in range(0, 9_000, 500):
        rig.send(*(f"m{n}" for n in range(start, start + 500)), tag="x")
    rig.send("wanted", tag="y")
    rig.engine.take_ready()
    for _ in range(10):
        names = rig.names(tags="y")
        if names:
            break
        assert ("billing", "orders") in rig.engine.take_ready().pairs  # told to ask again
    assert names == ["wanted"]
    rig.crash()
    assert rig.names(tags="x y") == []


class TestDelay:
    def test_a_delayed_message_is_in_no_queue_before_its_time(self) -> None:
        rig = EngineRig()
        (sent,) = rig.send("m1", wait_ms=1_234)
        assert (sent.queue_offset, sent.due_ms) == (-1, rig.now_ms + 1_234)
        rig.advance(1_233)
        assert rig.receive() == []
        assert rig.engine.next_deadline_ms() == rig.now_ms + 1
        rig.advance(1)
        assert "orders" in rig.engine.take_ready().topics
        assert rig.names() == ["m1"]

    def test_levels_are_the_brokers(self) -> None:
        rig = EngineRig(delivery=DeliveryConfig(delay_levels_ms=(50, 700)))
        assert [rig.send("m", level=n)[0].due_ms - rig.now_ms for n in (1, 2, 18)] == [50, 700, 700]

    def test_delays_survive_a_crash_and_fire_in_order(self) -> None:
        rig = EngineRig()
        for name, wait_ms in (("c", 300), ("a", 100), ("b", 200)):
            rig.send(name, wait_ms=wait_ms)
        rig.crash()
        rig.advance(5_000)
        assert rig.names() == ["a", "b", "c"]

    def test_a_batch_may_mix_present_and_future(self) -> None:
        rig = EngineRig()
        rig.send("now1", "now2")
        rig.send("later", wait_ms=10)
        assert rig.names() == ["now1", "now2"]


class TestFirstUse:
    def test_topics_and_groups_are_made_on_first_use(self) -> None:
        rig = EngineRig()
        assert rig.receive("g", topic="t") == []
        assert rig.engine.catalog.topic("t") is None  # a receive makes nothing
        rig.send("m1", topic="t")
        assert rig.engine.catalog.group("g") is None
        assert rig.names("g", topic="t") == ["m1"]
        assert rig.engine.catalog.group("g") is not None

    def test_unless_the_configuration_forbids_it(self) -> None:
        rig = EngineRig(catalog=CatalogConfig(auto_create=False, auto_create_groups=False))
        with pytest.raises(TopicNotFoundError):
            rig.send("m1")
        rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)
        rig.send("m1")
        with pytest.raises(GroupNotFoundError):
            rig.receive()

    def test_a_dead_letter_topic_needs_its_group(self) -> None:
        rig = EngineRig()
        with pytest.raises(TopicNotFoundError):
            rig.receive("g", topic="%DLQ%nobody")
        rig.engine.ensure_group("somebody", rig.now_ms)
        assert rig.receive("g", topic="%DLQ%somebody") == []


def test_what_a_full_disk_kept_from_being_done_stays_due() -> None:
    rig = EngineRig(files=(files := MemoryFiles()))
    rig.send(*(f"m{n}" for n in range(20)), body=b"x" * 40_000)
    rig.send("late", wait_ms=10)
    held = rig.receive(lease_ms=10)
    assert len(held) == 20
    files.disk.capacity_bytes = 0
    until_full(lambda n: rig.send("filler", topic="filler", body=b"x" * 60_000))
    until_full(lambda n: rig.engine.ensure_group(f"filler-{n}", rig.now_ms))
    rig.now_ms += 10
    with pytest.raises(StoreFullError):
        rig.engine.tick(rig.now_ms)
    files.disk.capacity_bytes = None
    rig.advance(0)
    assert sorted(rig.names()) == sorted(["late", *(f"m{n}" for n in range(20))])


def test_a_damaged_timer_run_is_rebuilt_from_the_log() -> None:
    rig = EngineRig(files=(files := MemoryFiles()), store=bounded(SMALL_STORE, SMALL_RUNS))
    for n in range(5):
        rig.send(f"m{n}", wait_ms=200_000 + n)
    rig.engine.close(rig.now_ms)
    (run,) = (inode for path, inode in files.inodes.items() if path.suffix == ".run")
    run.data[-1] ^= 1
    rig.engine = rig.reopened()
    assert rig.engine.recovery is not None
    assert rig.engine.recovery.rebuilt
    rig.advance(200_000 + 4)
    assert rig.names() == [f"m{n}" for n in range(5)]


def test_two_timer_runs_with_each_others_names_are_rebuilt_from_the_log() -> None:
    rig = EngineRig(files=(files := MemoryFiles()), store=bounded(SMALL_STORE, SMALL_RUNS))
    for first in (0, 5):
        for n in range(first, first + 5):
            rig.send(f"m{n}", wait_ms=200_000 + n)
        rig.checkpoint()
    rig.engine.close(rig.now_ms)
    one, other = (inode for path, inode in files.inodes.items() if path.suffix == ".run")
    one.data, other.data = other.data, one.data
    rig.engine = rig.reopened()
    assert rig.engine.recovery is not None
    assert rig.engine.recovery.rebuilt
    rig.advance(200_000 + 9)
    assert rig.names() == [f"m{n}" for n in range(10)]


def test_a_newer_timer_run_stops_the_start() -> None:
    rig = EngineRig(files=(files := MemoryFiles()), store=bounded(SMALL_STORE, SMALL_RUNS))
    rig.send(*(f"m{n}" for n in range(5)), wait_ms=200_000)
    rig.engine.close(rig.now_ms)
    (run,) = (inode for path, inode in files.inodes.items() if path.suffix == ".run")
    run.data[8] += 1  # the format
    run.data[-8:] = xxh3_64_intdigest(bytes(run.data[:-8])).to_bytes(8, "little")
    before = {path: bytes(inode.data) for path, inode in files.inodes.items()}
    with pytest.raises(UnsupportedFormatError, match="start the newer version of latermq"):
        rig.reopened()
    assert {path: bytes(inode.data) for path, inode in files.inodes.items()} == before
