"""Dedup ids: one message of each in a window, over restarts, whatever sort of message it is."""

from random import Random
from typing import Any, Final

import pytest

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.config.config import DedupConfig
from latermq_broker.engine.catalog.topics import TIME_MS_MAX
from latermq_broker.engine.state.dedup_ids import FORGET_LATE_MS, DedupIds
from latermq_broker.engine.state.model import Outgoing, Sent, TopicType
from latermq_broker.errors import BadRequestError, StoreFullError, TooManyRequestsError
from latermq_broker.store.files import Space
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.dedup_records import (
    DEDUP_RECORD_BYTES,
    DedupValue,
    dedup_key,
    encode_dedup_value,
)
from latermq_broker.store.records.record import RecordType
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles, lose_checkpoints
from support.mended import repair_log

WINDOW_MS: Final = 10_000
DEDUP: Final = DedupConfig(window_ms=WINDOW_MS)
SHOP: Final = User(access_key="shop", secret="the-secret-of-shop")
ELSE: Final = User(access_key="else", secret="the-secret-of-else")
ADMIN: Final = User(access_key="root", secret="the-secret-of-root", admin=True)


def outgoing(name: str, dedup_id: str = "once", topic: str = "orders", **fields: Any) -> Outgoing:
    return Outgoing(topic, b"body", name.encode(), name, dedup_id=dedup_id, **fields)


def send(rig: EngineRig, *messages: Outgoing, by: User | None = None) -> list[Sent]:
    sent = rig.engine.send(messages, rig.now_ms, by)
    rig.engine.write()
    return sent


def test_the_second_is_not_stored_and_told_of_the_first() -> None:
    rig = EngineRig(dedup=DEDUP)
    (first,) = send(rig, outgoing("m1"))
    assert first.first_id == ""
    end = rig.engine.store.log.end
    (second,) = send(rig, outgoing("m2"))
    assert second == first._replace(queue_id=-1, first_id="m1")
    assert rig.engine.store.log.end == end
    assert rig.names() == ["m1"]
    figures = rig.engine.figures
    assert (figures.messages_sent, figures.messages_duplicate) == (1, 1)


def test_another_id_another_topic_and_none_are_other_messages() -> None:
    rig = EngineRig(dedup=DEDUP)
    send(rig, outgoing("m1"))
    for other in (outgoing("m2", "twice"), outgoing("m3", topic="bills"), outgoing("m4", "")):
        assert send(rig, other)[0].first_id == ""
    assert rig.names() == ["m1", "m2", "m4"]


def test_of_one_send_one_is_stored_and_all_are_answered() -> None:
    rig = EngineRig(dedup=DEDUP)
    send(rig, outgoing("m0", "known"))
    messages = [
        outgoing("m1"), outgoing("m2"), outgoing("m3", ""), outgoing("m4", "known"),
        outgoing("m5", "other"), outgoing("m6", "other"),
    ]  # fmt: skip
    sent = send(rig, *messages)
    assert [one.first_id for one in sent] == ["", "m1", "", "m0", "", "m5"]
    assert [one.queue_offset for one in sent] == [1, 1, 2, 0, 3, 3]
    assert rig.names() == ["m0", "m1", "m3", "m5"]


def test_the_window_ends_to_the_millisecond() -> None:
    rig = EngineRig(dedup=DEDUP)
    send(rig, outgoing("m1"))
    rig.advance(WINDOW_MS - 1)
    assert send(rig, outgoing("m2"))[0].first_id == "m1"
    rig.advance(1)
    assert send(rig, outgoing("m3"))[0].first_id == ""  # a window of its own begins
    rig.advance(WINDOW_MS - 1)
    assert send(rig, outgoing("m4"))[0].first_id == "m3"


def test_what_is_over_is_forgotten_without_any_send() -> None:
    rig = EngineRig(dedup=DEDUP)
    send(rig, *[outgoing(f"m{n}", f"id-{n}") for n in range(5)])
    ids = rig.engine._state.dedup
    assert len(ids) == 5
    assert rig.engine.next_deadline_ms() == rig.now_ms + WINDOW_MS + FORGET_LATE_MS
    rig.advance(WINDOW_MS + FORGET_LATE_MS)
    assert (len(ids), ids.bytes, rig.engine.next_deadline_ms()) == (0, 0, None)


@pytest.mark.parametrize("how", ["crash", "restart", "crash after checkpoint", "no checkpoint"])
def test_it_holds_over_starts(how: str) -> None:
    files = MemoryFiles()
    rig = EngineRig(dedup=DEDUP, files=files)
    (first,) = send(rig, outgoing("m1", deliver_at_ms=rig.now_ms + 60_000))
    if how == "crash after checkpoint":
        rig.checkpoint()
    send(rig, outgoing("m2", "other"))
    if how == "restart":
        rig.restart()
    elif how == "no checkpoint":
        rig.engine.close(rig.now_ms)
        lose_checkpoints(files)
        rig.engine = rig.reopened()
    else:
        rig.crash()
    rig.advance(WINDOW_MS - 1)
    assert send(rig, outgoing("m3")) == [first._replace(first_id="m1")]
    assert send(rig, outgoing("m4", "other"))[0].first_id == "m2"
    rig.advance(1)
    assert send(rig, outgoing("m5"))[0].first_id == ""


def test_ids_outlive_the_segment_of_their_message() -> None:
    """Retention may be shorter than the window, and no checkpoint may be left."""
    files = MemoryFiles()
    store = short_store(retention_ms=1_000)
    rig = EngineRig(dedup=DedupConfig(window_ms=600_000), store=store, files=files)
    send(rig, outgoing("m1"))
    first = rig.segments()[0]
    for _ in range(60):
        rig.send("filler", topic="fillers", body=bytes(1_000))
    rig.advance(2_000)
    rig.retain()
    assert rig.segments()[0] > first
    assert rig.names() == []
    assert send(rig, outgoing("m2"))[0].first_id == "m1"
    rig.engine.close(rig.now_ms)
    lose_checkpoints(files)
    rig.engine = rig.reopened()
    assert send(rig, outgoing("m3"))[0].first_id == "m1"


def test_a_topic_made_anew_knows_no_ids() -> None:
    rig = EngineRig(dedup=DEDUP)
    send(rig, outgoing("m1"))
    rig.engine.topics.delete("orders", rig.now_ms)
    assert send(rig, outgoing("m2"))[0].first_id == ""
    assert send(rig, outgoing("m3"))[0].first_id == "m2"


@pytest.mark.parametrize("type", [TopicType.FIFO, TopicType.PRIORITY, TopicType.LITE])
def test_every_sort_of_topic_knows_ids(type: TopicType) -> None:
    rig = EngineRig(dedup=DEDUP)
    rig.engine.topics.create("orders", type, 0, rig.now_ms)
    sorts: dict[TopicType, dict[str, Any]] = {
        TopicType.FIFO: {"message_group": "a"},
        TopicType.PRIORITY: {"priority": 3},
        TopicType.LITE: {"lite_topic": "room-7"},
    }
    (first,) = send(rig, outgoing("m1", **sorts[type]))
    rig.crash()
    (second,) = send(rig, outgoing("m2", **sorts[type]))
    assert second == first._replace(queue_id=-1, first_id="m1")


def test_a_refused_send_leaves_no_id() -> None:
    rig = EngineRig(dedup=DEDUP)
    rig.send("m0")
    rig.engine.store.disk.look(Space(0, 1 << 30))
    with pytest.raises(StoreFullError):
        send(rig, outgoing("m1"))
    rig.engine.store.disk.look(Space(1 << 30, 1 << 30))
    assert send(rig, outgoing("m2"))[0].first_id == ""
    rig.engine.store.disk.look(Space(0, 1 << 30))
    assert (
        send(rig, outgoing("m3"))[0].first_id == "m2"
    )  # it is stored: a full disk does not matter


def test_beyond_the_limit_sends_with_an_id_are_refused_and_none_is_forgotten() -> None:
    rig = EngineRig(dedup=DedupConfig(window_ms=WINDOW_MS, bytes_max=200))
    ids = rig.engine._state.dedup
    for number in range(4):
        send(rig, outgoing(f"m{number}", f"id-{number}"))
    assert ids.bytes == 4 * (5 + 4 + 34 + 2)
    end = rig.engine.store.log.end
    with pytest.raises(TooManyRequestsError, match=r"dedup\.bytes_max"):
        send(rig, outgoing("m5", "id-5"), outgoing("m6", ""))
    assert rig.engine.store.log.end == end
    assert send(rig, outgoing("m7", "id-0"))[0].first_id == "m0"
    assert rig.send("m8")[0].first_id == ""
    rig.now_ms += WINDOW_MS  # no tick
    assert send(rig, outgoing("m9", "id-5"))[0].first_id == ""
    assert len(ids) == 1


@pytest.mark.parametrize("how", ["", "crash", "restart", "crash after checkpoint"])
def test_a_user_has_a_share_of_the_room_and_admins_have_the_last(how: str) -> None:
    rig = EngineRig(dedup=DedupConfig(window_ms=WINDOW_MS, bytes_max=500))  # 250 and 25
    ids = rig.engine._state.dedup
    for number in range(5):
        send(rig, outgoing(f"m{number}", f"id-{number}"), by=SHOP)
    assert ids.of_users == {"shop": 5 * (5 + 4 + 34 + 2 + 5)}
    if how == "crash after checkpoint":
        rig.checkpoint()
    if how:
        rig.restart() if how == "restart" else rig.crash()
        assert rig.engine._state.dedup.of_users == ids.of_users
    end = rig.engine.store.log.end
    with pytest.raises(TooManyRequestsError) as refused:
        send(rig, outgoing("m5", "id-5"), by=SHOP)
    assert str(refused.value) == (
        "user shop has 250 bytes of dedup ids and 50 more are asked for, at most 250 of 500 may "
        "be one user's (dedup.bytes_max, auth.user_share_percent)"
    )
    assert rig.engine.store.log.end == end
    assert send(rig, outgoing("m6", "id-0"), by=SHOP)[0].first_id == "m0"
    for number in range(4):
        send(rig, outgoing(f"n{number}", f"of-{number}"), by=ELSE)
    with pytest.raises(TooManyRequestsError, match="the last 25 of them for admins"):
        send(rig, outgoing("n4", "of-4"), by=ELSE)
    send(rig, outgoing("r1", "root"), by=ADMIN)
    rig.now_ms += WINDOW_MS  # no tick
    assert send(rig, outgoing("m7", "id-5"), by=SHOP)[0].first_id == ""
    rig.advance(WINDOW_MS + FORGET_LATE_MS)
    assert rig.engine._state.dedup.of_users == {}


def test_room_is_made_of_what_was_given_anew() -> None:
    rig = EngineRig(dedup=DedupConfig(window_ms=WINDOW_MS, bytes_max=100))
    send(rig, outgoing("m1"), outgoing("m2", "twice"))
    rig.now_ms += WINDOW_MS  # no tick: the row of the first window is still there
    send(rig, outgoing("m3"))
    assert send(rig, outgoing("m4", "twice"))[0].first_id == ""
    assert len(rig.engine._state.dedup) == 2


def test_many_long_ids_of_one_send_share_records() -> None:
    rig = EngineRig(dedup=DEDUP)
    messages = [outgoing(f"m{n}", f"{n:0128}") for n in range(1_000)]
    before = rig.engine.store.log.appended
    send(rig, *messages)
    records = rig.engine.store.log.appended - before - len(messages) - 1  # and the topic's
    assert records == -(-1_000 * 170 // DEDUP_RECORD_BYTES)
    rig.crash()
    assert {one.first_id for one in send(rig, *messages)} == {one.message_id for one in messages}


def test_a_torn_group_brings_neither_message_nor_id() -> None:
    """One atomic group: what a crash cut off is sent again, and stored."""
    rig = EngineRig(dedup=DEDUP)
    rig.send("m0")
    rig.engine.send([outgoing("m1")], rig.now_ms)  # never written
    rig.engine.abandon()
    rig.engine = rig.reopened()
    assert send(rig, outgoing("m2"))[0].first_id == ""
    assert rig.names() == ["m0", "m2"]


@pytest.mark.parametrize("spoilt", [RecordType.MESSAGE, RecordType.DEDUP])
def test_what_a_repair_gives_up_may_be_sent_again(spoilt: RecordType) -> None:
    """And nothing is swallowed: without its message an id is forgotten."""
    files = MemoryFiles()
    rig = EngineRig(dedup=DEDUP, files=files)
    send(rig, outgoing("m0", "kept"))
    send(rig, outgoing("m1"))
    send(rig, outgoing("m2", "kept too"))
    rig.engine.store.log.synced(rig.engine.store.log.sync())
    rig.engine.store.log.mark(rig.now_ms)
    rig.engine.write()
    rig.engine.abandon()
    records = [one for one in scan_directory(rig.DIRECTORY, files) if one.type is spoilt]
    [path] = [path for path in files.inodes if path.suffix == ".seg"]
    files.inodes[path].data[records[1].position - int(path.stem) + records[1].length - 1] ^= 1
    done = repair_log(rig.DIRECTORY, files, rig.config, rig.now_ms)
    assert [loss.position for loss in done.losses] == [records[1].position]
    rig.engine = rig.reopened()
    told = [send(rig, outgoing("again", name))[0].first_id for name in ("kept", "once", "kept too")]
    assert told == ["m0", "", "m2"]


def test_a_replay_holds_no_more_ids_than_were_held() -> None:
    rig = EngineRig(dedup=DEDUP)
    for number in range(50):
        send(rig, outgoing(f"m{number}", f"id-{number}"))
        rig.advance(WINDOW_MS // 5)
    rig.crash()
    assert len(rig.engine._state.dedup) <= 7
    record = rig.engine.store.log.read(rig.engine.store.log.last_position)
    assert record.type is RecordType.LIFE  # nothing since


def make(rig: EngineRig, topic: str, window_ms: int) -> None:
    times = TopicTimes(dedup_window_ms=window_ms)
    rig.engine.topics.create(topic, TopicType.MIXED, 1, rig.now_ms, times)


def alter(rig: EngineRig, topic: str, window_ms: int) -> None:
    times = TopicTimes(dedup_window_ms=window_ms)
    rig.engine.topics.alter(topic, None, 0, rig.now_ms, times)


def start_again(rig: EngineRig, how: str) -> None:
    if how == "checkpoint":
        rig.checkpoint()
    if how == "restart":
        rig.restart()
    else:
        rig.crash()


@pytest.mark.parametrize("how", ["crash", "restart", "checkpoint"])
def test_a_topic_may_have_a_window_of_its_own(how: str) -> None:
    rig = EngineRig(dedup=DEDUP)
    make(rig, "orders", 6 * WINDOW_MS)
    send(rig, outgoing("m1"))
    send(rig, outgoing("n1", topic="bills"))
    start_again(rig, how)
    rig.advance(WINDOW_MS)
    assert send(rig, outgoing("n2", topic="bills"))[0].first_id == ""
    rig.advance(5 * WINDOW_MS - 1)
    assert send(rig, outgoing("m2"))[0].first_id == "m1"
    rig.advance(1)
    assert send(rig, outgoing("m3"))[0].first_id == ""


def test_an_id_keeps_the_window_that_it_was_given() -> None:
    rig = EngineRig(dedup=DEDUP)
    send(rig, outgoing("m1"))
    alter(rig, "orders", 1)
    send(rig, outgoing("m2", "short"))
    rig.advance(1)
    assert send(rig, outgoing("m3"))[0].first_id == "m1"
    assert send(rig, outgoing("m4", "short"))[0].first_id == ""
    alter(rig, "orders", UNSET)
    send(rig, outgoing("m5", "usual"))
    rig.crash()
    rig.advance(WINDOW_MS - 1)
    assert send(rig, outgoing("m6", "usual"))[0].first_id == "m5"
    assert send(rig, outgoing("m7"))[0].first_id == ""


def test_windows_out_of_bounds_and_another_one_are_refused() -> None:
    rig = EngineRig(dedup=DEDUP)
    make(rig, "orders", 60_000)
    make(rig, "orders", 60_000)
    for window_ms in (0, -2, TIME_MS_MAX + 1):
        with pytest.raises(BadRequestError, match="a dedup window is from 1 to"):
            alter(rig, "orders", window_ms)
    with pytest.raises(BadRequestError, match="alter it"):
        make(rig, "orders", 60_001)
    kept = rig.engine.topics.alter("orders", None, 0, rig.now_ms, TopicTimes(read_ms=5_000))
    assert (kept.retention_ms, kept.dedup_window_ms) == (5_000, 60_000)


def test_a_window_is_set_whatever_the_broker_s_retention_became() -> None:
    rig = EngineRig(dedup=DEDUP, store=short_store(retention_ms=1_000))
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms, TopicTimes(unread_ms=1_000))
    object.__setattr__(rig.config.store, "retention_ms", 2_000)
    rig.crash()
    alter(rig, "orders", 5)
    with pytest.raises(BadRequestError, match="at least as long"):
        rig.engine.topics.alter("orders", None, 0, rig.now_ms, TopicTimes(unread_ms=1_000))


def test_what_is_over_makes_room_behind_what_counts_longer() -> None:
    """At the bound, and in a tick."""
    rig = EngineRig(dedup=DedupConfig(window_ms=WINDOW_MS, bytes_max=135))  # three of them
    make(rig, "audit", 100 * WINDOW_MS)
    send(rig, outgoing("m1", topic="audit"))
    send(rig, outgoing("m2", "two"), outgoing("m3", "six"))
    ids = rig.engine._state.dedup
    assert len(ids) == 3
    rig.now_ms += WINDOW_MS  # no tick
    assert send(rig, outgoing("m4", "ten"))[0].first_id == ""
    assert len(ids) == 2
    assert rig.engine.next_deadline_ms() == rig.now_ms + WINDOW_MS + FORGET_LATE_MS
    rig.advance(WINDOW_MS + FORGET_LATE_MS)
    assert len(ids) == 1
    assert send(rig, outgoing("m5", topic="audit"))[0].first_id == "m1"


def test_of_an_id_that_was_given_anew_the_later_row_counts() -> None:
    """The former one stands behind it in the checkpoint."""
    rig = EngineRig(dedup=DEDUP)
    make(rig, "audit", 3 * WINDOW_MS)
    send(rig, outgoing("m1", topic="audit"))
    send(rig, outgoing("m2"))
    alter(rig, "orders", 4 * WINDOW_MS)
    rig.now_ms += WINDOW_MS  # no tick: the row of m2 is still there
    assert send(rig, outgoing("m3"))[0].first_id == ""
    rig.checkpoint()
    rig.crash()
    assert send(rig, outgoing("m4"))[0].first_id == "m3"
    rig.advance(4 * WINDOW_MS - 1)
    assert send(rig, outgoing("m5"))[0].first_id == "m3"
    rig.advance(1 + FORGET_LATE_MS)
    assert (len(rig.engine._state.dedup), rig.engine._state.dedup.bytes) == (0, 0)


def test_ids_of_many_windows_are_brought_back_as_they_were() -> None:
    random = Random(7)
    ids = DedupIds(1 << 20)
    known: dict[bytes, int] = {}
    now_ms = 1_000
    for step in range(3_000):
        now_ms += random.randrange(3)
        key = dedup_key(1, f"id-{random.randrange(300)}")
        assert (ids.get(key, now_ms) is None) == (known.get(key, 0) <= now_ms)
        if ids.get(key, now_ms) is None:
            known[key] = now_ms + random.choice((5, 60, 700))
            value = DedupValue(step, 0, 0, known[key], b"m" * random.choice((3, 900)))
            ids.put([(key, encode_dedup_value(value))])
        if step % 7 == 0:
            ids.forget(now_ms, random.randrange(9))
        if step % 100 == 0:
            again = DedupIds(1 << 20)
            again.restore(ids.snapshot())
            assert again.snapshot() == ids.snapshot()
            assert again.bytes == ids.bytes == len(ids.snapshot())
            for key in known:
                assert again.get(key, now_ms) == ids.get(key, now_ms)
    ids.forget(now_ms + 700, 1 << 20)
    assert (len(ids), ids.bytes, ids.snapshot(), ids.next_deadline_ms()) == (0, 0, b"", None)
