"""Brokers of a replicated log hear of each other: what they say, how old it is, who is gone."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.errors import (
    EntriesGoneError,
    EntriesLostError,
    LogUnavailableError,
    StoreError,
)
from latermq_broker.observability.replication_figures import (
    OWNER,
    STANDBY,
    Member,
    ReplicationFigures,
)
from latermq_broker.replication.members import announcing
from latermq_broker.replication.members import roster as roster_module
from latermq_broker.replication.members.announcing import Members
from latermq_broker.replication.members.member_entry import (
    MEMBER_BYTES_MAX,
    decode_member,
    encode_member,
    encode_name,
)
from latermq_broker.replication.members.roster import DROPPED_MS, SILENT_MS, Notice, Roster
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.files import RealFiles
from support.log_in_memory import LogInMemory, MembersInMemory
from support.machine import patient

MEMBER = Member("10.0.0.2:8081", 0, STANDBY, 4, 81_920, 3, "1.4.0")
# Never changed: what one version says, others read.
GOLDEN = (
    b'{"address": "10.0.0.2:8081", "shard": 0, "role": "standby", "epoch": 4, '
    b'"position": 81920, "lag_entries": 3, "version": "1.4.0"}'
)


# The next version's, as little changed.
GOLDEN_READY = GOLDEN[:-1] + b', "ready": true, "checkpoint": 65536}'


def figures(role: str, epoch: int = 4) -> Callable[[], ReplicationFigures]:
    return lambda: ReplicationFigures(role, "shop", epoch, 81_920, 20, Histogram(DURATION_MS))


# --- an entry ----------------------------------------------------------------------------------


def test_what_is_said_is_read() -> None:
    assert encode_member(MEMBER) == GOLDEN
    assert decode_member(b"b:/data", GOLDEN) == ("b:/data", MEMBER)
    ready = MEMBER._replace(ready=True, checkpoint=65_536)
    assert encode_member(ready) == GOLDEN_READY
    assert decode_member(b"b:/data", GOLDEN_READY) == ("b:/data", ready)
    later = GOLDEN.replace(b"{", b'{"zone": ["a", 1], ', 1).replace(b"standby", b"witness")
    assert decode_member(b"b:/data", later)[1] == MEMBER._replace(role="witness")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"b", b""),
        (b"b", b"{"),
        (b"b", b"[]"),
        (b"b", b"null"),
        (b"b", b"[" * MEMBER_BYTES_MAX),
        (b"b", b"\xff" + GOLDEN),
        (b"\xff", GOLDEN),
        (b"b" * (MEMBER_BYTES_MAX + 1), GOLDEN),
        (b"b", GOLDEN + b" " * MEMBER_BYTES_MAX),
        (b"b", GOLDEN.replace(b'"epoch": 4, ', b"")),
        (b"b", GOLDEN.replace(b"81920", b"-1")),
        (b"b", GOLDEN.replace(b"81920", b"1e3")),
        (b"b", GOLDEN.replace(b"81920", b"true")),
        (b"b", GOLDEN.replace(b"81920", b"9223372036854775808")),
        (b"b", GOLDEN.replace(b'"standby"', b"7")),
        (b"b", GOLDEN.replace(b"standby", b"\\ud800")),
        (b"b", GOLDEN_READY.replace(b"true", b"1")),
        (b"b", GOLDEN_READY.replace(b"65536", b"null")),
    ],
)
def test_what_cannot_be_read_is_skipped_and_counted(key: bytes, value: bytes) -> None:
    roster = Roster()
    roster.take(Notice(b"a", GOLDEN, 1), 1)
    roster.take(Notice(key, value, 2), 2)
    assert ([each.name for each in roster.seen(2)], roster.unread) == (["a"], 1)


def test_a_name_that_is_no_text_is_one_all_the_same() -> None:
    assert decode_member(encode_name("host:/d\udcff"), GOLDEN)[0] == "host:/d\\udcff"


# --- a roster ----------------------------------------------------------------------------------


def test_who_says_nothing_is_silent_and_then_forgotten() -> None:
    roster = Roster()
    roster.take(Notice(b"a", GOLDEN, 1_000_000), 50)
    roster.take(Notice(b"b", GOLDEN, 1_000_000), 50)

    def ages(now_ms: int) -> list[tuple[str, int, bool]]:
        return [(each.name, each.ms_ago, each.silent) for each in roster.seen(now_ms)]

    assert ages(60) == [("a", 10, False), ("b", 10, False)]
    roster.take(Notice(b"b", GOLDEN, 1_000_000 + SILENT_MS), 70)  # all that was read is so old
    assert ages(71) == [("a", SILENT_MS + 1, True), ("b", 1, False)]
    roster.take(Notice(b"b", GOLDEN, 1_000_000 + DROPPED_MS), 80)
    assert ages(80) == [("a", DROPPED_MS, True), ("b", 0, False)]
    assert ages(81) == [("b", 1, False)]
    roster.take(Notice(b"a", GOLDEN, 1_000_001 + DROPPED_MS), 90)
    roster.take(Notice(b"b", None, 1_000_002 + DROPPED_MS), 90)
    assert ages(90) == [("a", 1, False)]


def test_a_clock_of_the_engine_that_falls_back_silences_nobody() -> None:
    """Another node leads the topic, and its clock is behind."""
    roster = Roster()
    roster.take(Notice(b"a", GOLDEN, 1_000_000), 0)
    roster.take(Notice(b"b", GOLDEN, 1_000_000 - 2 * SILENT_MS), 10)
    assert [each.ms_ago for each in roster.seen(20)] == [10, 10]


def test_there_is_room_for_so_many_and_the_forgotten_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster_module, "MEMBERS_MAX", 2)
    roster = Roster()
    for name in (b"a", b"b", b"c", b"a"):
        roster.take(Notice(name, GOLDEN, 1), 1)
    assert ([each.name for each in roster.seen(1)], roster.unread) == (["a", "b"], 1)
    roster.take(Notice(b"b", GOLDEN, 1 + DROPPED_MS), 2)
    roster.take(Notice(b"c", GOLDEN, 2 + DROPPED_MS), 2)
    assert ([each.name for each in roster.seen(2)], roster.unread) == (["b", "c"], 1)


def test_how_far_behind_somebody_is_is_told_by_where_the_own_log_ended() -> None:
    roster = Roster()

    def behind(end: int | None, now_ms: int) -> tuple[int | None, int | None]:
        roster.log_ends(end, now_ms)
        roster.take(Notice(b"b", GOLDEN, now_ms), now_ms)
        (seen,) = roster.seen(now_ms + 100)
        return seen.behind_bytes, seen.behind_ms

    position = MEMBER.position
    assert behind(None, 0) == (None, None)  # the log is another broker's
    assert behind(position + 1, 1_000) == (1, None)  # since before it was this one's
    roster.log_ends(None, 1_500)
    assert behind(position, 2_000) == (0, 0)
    assert behind(position - 1, 2_500) == (0, 0)  # the standby was told first
    assert behind(position + 10, 3_000) == (10, 0)
    assert behind(position + 10, 3_500) == (10, 500)
    assert behind(position + 90, 8_000) == (90, 5_000)


# --- brokers -----------------------------------------------------------------------------------


def members(topic: MembersInMemory, name: str, shard: int = 0) -> Members:
    return Members(topic, name, f"{name}:8081", shard, lambda: topic.now_ms)


class FailingOnce(MembersInMemory):
    """Its first reader cannot go on."""

    def __init__(self, kind: type[StoreError]) -> None:
        super().__init__()
        self._kind = kind
        self.failed = False

    async def tail(self) -> AsyncIterator[Notice]:
        if not self.failed:
            self.failed = True
            raise self._kind("here")
        async for notice in super().tail():
            yield notice


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(patient(30)):
        while not true():
            await asyncio.sleep(0)


async def test_they_hear_of_each_other_at_once_and_of_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcing, "TELL_S", 3_600.0)
    topic = MembersInMemory()
    a, b, elsewhere = members(topic, "a"), members(topic, "b"), members(topic, "c", shard=1)
    for each in (a, b, elsewhere):
        each.tell(figures(STANDBY))
    await until(lambda: a.others().seen and b.others().seen and len(topic.notices) == 3)
    (seen,) = a.others().seen
    assert a.others().heard
    assert (seen.name, seen.member.address, seen.silent) == ("b", "b:8081", False)
    assert (seen.member.role, seen.member.position, a.others().standbys) == (STANDBY, 81_920, 1)
    b.tell(figures(OWNER, 5))
    await until(lambda: a.others().seen[0].member.epoch == 5)
    assert a.others().standbys == 0
    b.tell(figures(STANDBY, 5))
    await until(lambda: a.others().standbys == 1)
    topic.now_ms += SILENT_MS + 1
    assert a.others().standbys == 0
    await b.close()
    await until(lambda: not a.others().seen)
    for each in (a, elsewhere):
        await each.close()
    assert [notice.value for notice in topic.notices[-3:]] == [None] * 3


async def test_a_topic_that_is_away_is_said_once_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(announcing, "TELL_S", 0.0)
    topic = MembersInMemory()
    topic.away = True
    member = members(topic, "a")
    asked: list[int] = []

    def counted() -> ReplicationFigures:
        asked.append(1)
        return figures(STANDBY)()

    member.tell(counted)
    await until(lambda: len(asked) > 5)
    await until(lambda: "members are not heard" in caplog.text)
    assert caplog.text.count("members are not") == 2
    topic.away = False
    topic.notices.append(Notice(b"b", GOLDEN, topic.now_ms))
    await until(lambda: member.others().seen and len(topic.notices) > 1)
    await member.close()


@pytest.mark.parametrize("kind", [LogUnavailableError, EntriesGoneError, EntriesLostError])
async def test_a_topic_that_cannot_be_read_on_is_read_anew(
    kind: type[StoreError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the log lost what it acknowledged: then all it has is to be read."""
    monkeypatch.setattr(announcing, "TELL_S", 0.0)
    topic = FailingOnce(kind)
    member = members(topic, "a")
    member.tell(figures(STANDBY))
    topic.notices.append(Notice(b"b", GOLDEN, topic.now_ms))
    await until(lambda: member.others().seen)
    assert topic.failed
    await member.close()


async def test_a_standby_says_what_it_is_from_its_start_to_its_end(tmp_path: Path) -> None:
    """It is told to end before it claims."""
    topic, stop = MembersInMemory(), asyncio.Event()
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    told = members(topic, "a")
    replica = Replica(place, LogInMemory(), Config(), RealFiles(), lambda: 1_000, told)
    stop.set()
    assert await replica.take_over(SystemClock(), stop) is None
    await until(lambda: topic.notices)
    assert json.loads(topic.notices[0].value or b"")["role"] == STANDBY
    topic.notices.append(Notice(b"b", GOLDEN, topic.now_ms))
    await until(lambda: replica.figures().others.standbys == 1)
    await replica.close()
    assert topic.notices[-1].value is None
