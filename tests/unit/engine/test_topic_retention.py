"""Topics whose messages stay for a time of their own, in a log that all topics share."""

import logging
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.engine.retention.trimming import ROW_COST, TRIM_ROWS
from latermq_broker.engine.state.model import TopicType
from latermq_broker.errors import BadRequestError
from latermq_broker.store.files import Space
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles, lose_checkpoints
from support.recount import check_uses

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
BODY: Final = b"x" * 1_000


def rig_with(**settings: int) -> EngineRig:
    ages = {"retention_ms": HOUR_MS, "unread_retention_ms": 0, **settings}
    return EngineRig(store=short_store(**ages))


def topic(rig: EngineRig, name: str, read_ms: int = UNSET, unread_ms: int = UNSET) -> None:
    ages = TopicTimes(read_ms, unread_ms)
    rig.engine.topics.create(name, TopicType.MIXED, 1, rig.now_ms, ages)


def fill(rig: EngineRig, name: str, segments: int = 2) -> int:
    """Messages over so many segments; how many."""
    count, wanted = 0, len(rig.engine.store.log.segments) + segments
    while len(rig.engine.store.log.segments) < wanted:
        rig.send("f", topic=name, body=BODY)
        count += 1
    rig.checkpoint()
    return count


def pass_by(rig: EngineRig, passing_ms: int) -> None:
    """So long, and 18 seconds in which retention does all that it can."""
    rig.advance(passing_ms)
    for _ in range(2):
        rig.retain()
    check_uses(rig.engine)


def left(rig: EngineRig, name: str) -> int:
    ends = rig.engine.queues.ends(name, 0)
    return ends.next_offset - ends.earliest_offset


def oldest_ms(rig: EngineRig, name: str) -> int:
    """When the oldest message of the topic was stored, as figures of lag tell it."""
    wanted = rig.engine.catalog.topic(name)
    assert wanted is not None
    queue = rig.engine._state.queue(wanted.id, 0)
    return queue.entered_ms(queue.first)


def test_messages_that_stay_shorter_leave_their_queue_and_free_what_is_theirs_alone() -> None:
    rig = rig_with()
    topic(rig, "short", 2 * MINUTE_MS)
    fill(rig, "short", 3)
    before = len(rig.segments())
    pass_by(rig, MINUTE_MS)
    assert left(rig, "short") > 0
    pass_by(rig, 2 * MINUTE_MS)
    assert left(rig, "short") == 0
    assert len(rig.segments()) == 1 < before
    rig.crash()
    assert left(rig, "short") == 0


def test_in_one_segment_they_leave_their_queue_too() -> None:
    rig = rig_with()
    topic(rig, "short", 2 * MINUTE_MS)
    rig.send("a", topic="short")
    rig.send("b", topic="orders")
    pass_by(rig, 3 * MINUTE_MS)
    assert (left(rig, "short"), left(rig, "orders")) == (0, 1)


def test_beside_others_they_go_and_the_segment_stays() -> None:
    rig = rig_with()
    topic(rig, "short", 2 * MINUTE_MS)
    rig.send("kept", topic="orders")
    fill(rig, "short", 3)
    before = rig.segments()
    pass_by(rig, 3 * MINUTE_MS)
    assert (left(rig, "short"), left(rig, "orders")) == (0, 1)
    assert rig.segments() == before
    assert rig.engine.retention.kept_longer_bytes == 0  # nothing is older than it may be
    pass_by(rig, HOUR_MS)
    assert left(rig, "orders") == 0
    assert len(rig.segments()) == 1


def test_few_messages_that_stay_longer_are_rolled_forward() -> None:
    rig = rig_with()
    topic(rig, "audit", 3 * HOUR_MS)
    fill(rig, "orders")
    rig.send("kept", topic="audit")
    fill(rig, "orders")
    before = rig.segments()
    pass_by(rig, 2 * HOUR_MS)
    retention = rig.engine.retention
    assert (left(rig, "audit"), left(rig, "orders")) == (1, 1)
    assert rig.segments() == before[-1:]
    assert retention.roll_forward.messages_moved == 1
    assert retention.kept_for == ("", "", 0)
    fill(rig, "orders")
    stored_ms = oldest_ms(rig, "audit")
    rig.crash()
    check_uses(rig.engine)
    assert isinstance(rig.files, MemoryFiles)
    lose_checkpoints(rig.files)
    rig.crash()
    check_uses(rig.engine)
    assert oldest_ms(rig, "audit") == stored_ms > 0
    assert rig.names("new", topic="audit") == ["kept"]
    pass_by(rig, 2 * HOUR_MS)
    assert left(rig, "audit") == 0
    check_uses(rig.engine)


def test_many_messages_that_stay_longer_keep_their_segments_and_no_other_message() -> None:
    rig = rig_with()
    topic(rig, "audit", 3 * HOUR_MS)
    topic(rig, "short", 2 * MINUTE_MS)
    for _ in range(3):
        rig.send(*"abcde", topic="audit", body=BODY)
        rig.send(*"abcde", topic="orders", body=BODY)
        rig.send(*"abcde", topic="short", body=BODY)
    fill(rig, "orders")
    before = rig.segments()
    pass_by(rig, 2 * HOUR_MS)
    retention = rig.engine.retention
    assert rig.segments() == before
    assert (left(rig, "audit"), left(rig, "short")) == (15, 0)
    assert left(rig, "orders") <= 14  # of the segment that is written
    assert retention.kept_for[:2] == ("", "audit")
    assert retention.kept_longer_bytes > 0
    assert retention.kept_unread_bytes == 0
    assert retention.roll_forward.messages_moved == 0
    rig.send("late", topic="short")
    pass_by(rig, 3 * MINUTE_MS)
    assert left(rig, "short") == 0
    pass_by(rig, HOUR_MS)
    assert left(rig, "audit") == 0
    assert retention.kept_for == ("", "", 0)
    assert rig.segments() == before[-1:]


def test_only_so_many_are_rolled_forward() -> None:
    """Each takes memory; beyond that their segments stay."""
    rig = rig_with()
    rig.engine.retention.roll_forward.moved_entries_max = 2
    topic(rig, "audit", 0)
    for _ in range(3):
        rig.send("kept", topic="audit")
        fill(rig, "orders", 1)
    pass_by(rig, 2 * HOUR_MS)
    retention = rig.engine.retention
    assert retention.roll_forward.messages_moved == 2
    assert retention.kept_for[:2] == ("", "audit")
    assert rig.names("new", topic="audit") == ["kept"] * 3
    rig.engine.retention.roll_forward.moved_entries_max = 3
    pass_by(rig, 2 * MINUTE_MS)
    assert retention.kept_for == ("", "", 0)
    rig.engine.retention.roll_forward.moved_entries_max = 1  # fewer than there are
    fill(rig, "orders")
    pass_by(rig, 2 * HOUR_MS)
    assert len(rig.segments()) == 1  # nothing of it was to be moved
    assert rig.names("newer", topic="audit") == ["kept"] * 3


@pytest.mark.parametrize("read_ms", [30 * 24 * HOUR_MS, 0])
def test_a_shorter_age_takes_nothing_from_another_topic(read_ms: int) -> None:
    rig = rig_with(retention_ms=72 * HOUR_MS)
    topic(rig, "short", 5_000)
    topic(rig, "audit", read_ms)
    sent = {name: fill(rig, name) for name in ("orders", "audit", "short", "orders")}
    for name in sent:
        while got := rig.receive(topic=name):
            rig.ack(*got)
    sent["orders"] = left(rig, "orders")
    pass_by(rig, 70 * HOUR_MS)
    assert (left(rig, "orders"), left(rig, "short")) == (sent["orders"], 0)
    pass_by(rig, 26 * HOUR_MS)
    assert left(rig, "audit") == sent["audit"]
    assert left(rig, "orders") <= 1  # of the segment that is written
    rig.restart()
    assert left(rig, "audit") == sent["audit"]
    assert rig.engine.retention.trims.entries_expired_early == 0


@pytest.mark.parametrize("cause", ["the disk is nearly full", "store.retention_bytes"])
def test_what_goes_before_its_age_is_counted_and_said(
    cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    full = "disk" in cause
    rig = rig_with(retention_bytes=0 if full else 40 << 10)
    topic(rig, "audit", 0)
    count = fill(rig, "audit", 4)
    while got := rig.receive(topic="audit"):
        rig.ack(*got)
    if full:
        rig.engine.store.disk.look(Space(5, 100))
    with caplog.at_level(logging.WARNING):
        pass_by(rig, MINUTE_MS)
    early = count - left(rig, "audit")
    assert early > 0
    assert rig.engine.retention.trims.entries_expired_early == early
    said = [each for each in caplog.records if each.message == "messages removed before their age"]
    assert sum(each.__dict__["count"] for each in said) == early
    assert {each.__dict__["topic"] for each in said} == {"audit"}
    assert all(cause in each.__dict__["cause"] for each in said)


def test_for_ever_is_for_ever() -> None:
    rig = rig_with()
    topic(rig, "audit", 0)
    rig.send("kept", topic="audit")
    fill(rig, "audit")
    pass_by(rig, 1_000 * HOUR_MS)
    assert rig.segments()[0] == 0


def test_where_nothing_goes_by_its_age_one_topic_may() -> None:
    rig = rig_with(retention_ms=0)
    topic(rig, "short", 2 * MINUTE_MS)
    fill(rig, "short", 3)
    pass_by(rig, 3 * MINUTE_MS)
    assert len(rig.segments()) == 1
    rig.send("kept", topic="orders")
    fill(rig, "short", 3)
    pass_by(rig, 3 * HOUR_MS)
    assert left(rig, "orders") == 1


def test_what_is_unread_stays_until_the_disk_is_nearly_full() -> None:
    rig = rig_with()
    topic(rig, "short", 2 * MINUTE_MS)
    rig.send("first", topic="short")
    rig.ack(*rig.receive(topic="short"))
    unread = fill(rig, "short")
    pass_by(rig, HOUR_MS)
    assert left(rig, "short") == unread
    rig.engine.store.disk.look(Space(5, 100))
    pass_by(rig, MINUTE_MS)
    assert left(rig, "short") < unread
    assert rig.engine.retention.trims.entries_expired_unread > 0


def test_what_is_unread_goes_at_its_age_and_it_is_said_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = rig_with()
    topic(rig, "short", MINUTE_MS, 10 * MINUTE_MS)
    rig.send("first", topic="short")
    rig.ack(*rig.receive(topic="short"))
    rig.send("unread", topic="short")
    pass_by(rig, 8 * MINUTE_MS)
    assert left(rig, "short") == 1
    assert not rig.engine.retention.soon.pairs
    with caplog.at_level(logging.WARNING):
        pass_by(rig, MINUTE_MS)
    assert left(rig, "short") == 1
    assert list(rig.engine.retention.soon.pairs) == [("billing", "short")]
    said = [each.message for each in caplog.records]
    assert said == ["messages will be removed unread"]
    with caplog.at_level(logging.WARNING):
        pass_by(rig, MINUTE_MS)
    assert left(rig, "short") == 0
    assert not rig.engine.retention.soon.pairs
    said = [each.message for each in caplog.records]
    assert said == ["messages will be removed unread", "messages removed unread"]


def test_it_is_said_of_topics_without_an_age_of_their_own_too() -> None:
    rig = rig_with(unread_retention_ms=10 * HOUR_MS)
    rig.send("first")
    rig.ack(*rig.receive())
    rig.send("unread")
    pass_by(rig, 9 * HOUR_MS)
    assert list(rig.engine.retention.soon.pairs) == [("billing", "orders")]


def test_a_longer_time_holds_for_what_a_pass_had_found() -> None:
    rig = rig_with()
    fill(rig, "orders", 4)
    rig.now_ms += 2 * HOUR_MS
    rig.engine.retention.step_cost = 1
    rig.engine.chores[0].step(rig.now_ms)
    ages = TopicTimes(10 * HOUR_MS)
    rig.engine.topics.alter("orders", None, 0, rig.now_ms, ages)
    rig.engine.retention.step_cost = 1 << 30
    before = rig.segments()
    pass_by(rig, HOUR_MS)
    assert rig.segments() == before


def test_settings() -> None:
    rig = rig_with()
    topic(rig, "orders", 2 * MINUTE_MS)
    topic(rig, "orders", 2 * MINUTE_MS)  # the same again
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)  # or nothing said of it
    with pytest.raises(BadRequestError, match="for another time"):
        topic(rig, "orders", 3 * MINUTE_MS)
    for ages in (
        TopicTimes(-2), TopicTimes(1 << 62), TopicTimes(unread_ms=-2), TopicTimes(0, 5),
        TopicTimes(10, 9), TopicTimes(unread_ms=MINUTE_MS), TopicTimes(UNSET, MINUTE_MS),
    ):  # fmt: skip
        with pytest.raises(BadRequestError):
            rig.engine.topics.alter("orders", None, 0, rig.now_ms, ages)
    altered = rig.engine.topics.alter(
        "orders", None, 0, rig.now_ms, TopicTimes(unread_ms=9 * MINUTE_MS)
    )
    assert (altered.retention_ms, altered.unread_retention_ms) == (2 * MINUTE_MS, 9 * MINUTE_MS)
    rig.restart()
    known = rig.engine.catalog.topic("orders")
    assert known == altered
    plain = rig.engine.topics.alter("orders", None, 0, rig.now_ms, TopicTimes(UNSET, UNSET))
    assert (plain.retention_ms, plain.unread_retention_ms) == (UNSET, UNSET)
    rig.crash()
    assert rig.engine.catalog.topic("orders") == plain


def test_unread_stays_at_least_as_long_as_read() -> None:
    rig = rig_with(unread_retention_ms=2 * HOUR_MS)
    topic(rig, "audit", 5 * HOUR_MS)
    audit = rig.engine.catalog.topic("audit")
    assert audit is not None
    assert rig.engine.retention.ages.unread_ms(audit) == 5 * HOUR_MS


def test_a_look_at_thousands_of_queues_is_taken_in_parts() -> None:
    rig = rig_with()
    for number in range(TRIM_ROWS // 64 + 1):
        made = rig.engine.topics.create(f"t{number}", TopicType.MIXED, 64, rig.now_ms)
        rig.engine.topics.ends(made)
    topic(rig, "short", MINUTE_MS)
    rig.send("m", topic="short", body=BODY)
    looked = list(rig.engine.retention.trims._trim(lambda topic, queue, readers: queue.first))
    assert looked == [TRIM_ROWS * ROW_COST]
    pass_by(rig, 2 * MINUTE_MS)
    assert left(rig, "short") == 0


def test_a_damaged_queue_is_passed_over_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_with()
    names = ("spoilt", "whole")
    for name in names:
        topic(rig, name, 2 * MINUTE_MS, HOUR_MS)
        rig.engine.ensure_group("billing", rig.now_ms)
        rig.receive(topic=name)
        fill(rig, name, 1)
    spoilt = rig.engine.catalog.topic("spoilt")
    assert spoilt is not None
    files = rig.files
    assert isinstance(files, MemoryFiles)
    del files.disk.bytes_of(Path(f"/data/cq/{spoilt.id}/0.{0:020d}.cq"))[:]
    kept = left(rig, "spoilt")

    def later(passing_ms: int) -> None:  # no checkpoint vouches for the files any more
        rig.advance(passing_ms)
        for _ in range(30):
            rig.advance(1_000)

    later(58 * MINUTE_MS)
    assert [pair[1] for pair in rig.engine.retention.soon.pairs] == ["whole"]
    later(3 * MINUTE_MS)
    assert (left(rig, "spoilt"), left(rig, "whole")) == (kept, 0)
    told = [each for each in caplog.records if "queue damaged" in each.message]
    assert len(told) == 1
