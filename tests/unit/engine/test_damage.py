"""A record that rotted after it was stored: its message is given up, loudly; the others go on."""

from dataclasses import replace
from functools import partial

import pytest

from latermq_broker.config.config import OnCorrupt
from latermq_broker.engine.state.model import DeadFilter, PendingFilter
from latermq_broker.errors import IllegalOffsetError, MessageNotFoundError, StoreReadOnlyError
from support.engine_facts import newest_letter
from support.engine_rig import SMALL_STORE, EngineRig
from support.memory_files import MemoryFiles

BODY = b"to be damaged"


@pytest.fixture
def rig() -> EngineRig:
    return EngineRig(files=MemoryFiles())


def damage(rig: EngineRig) -> None:
    """Flip a bit in the one body that asks for it."""
    assert isinstance(rig.files, MemoryFiles)
    segment = next(one for path, one in rig.files.inodes.items() if path.suffix == ".seg")
    segment.data[segment.data.index(BODY)] ^= 1


def in_flight(rig: EngineRig) -> int:
    return sum(count.count for count in rig.engine.pending.count(PendingFilter(group="billing")))


def assert_given_up(rig: EngineRig, caplog: pytest.LogCaptureFixture) -> None:
    assert len(rig.engine._state.damaged) == 1
    [record] = caplog.records
    assert (record.levelname, record.message) == ("ERROR", "message damaged, given up")
    assert vars(record)["reason"] == "its checksum does not match"


def test_a_fresh_message(rig: EngineRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.send("bad", body=BODY)
    rig.send("good")
    damage(rig)
    assert rig.names() == ["good"]
    assert in_flight(rig) == 1
    assert_given_up(rig, caplog)


def test_a_damaged_message_counts_once_however_often_it_is_looked_at(
    rig: EngineRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.send("bad", body=BODY)
    rig.send("good")
    damage(rig)
    assert rig.names() == ["good"]
    for _ in range(2):
        found, _ = rig.engine.messages.by_time("orders", 1, 0)
        assert len(found) == 1
    assert_given_up(rig, caplog)


def test_a_delayed_message(rig: EngineRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.send("bad", wait_ms=1_000, body=BODY)
    rig.send("good", wait_ms=1_000)
    damage(rig)
    rig.advance(1_000)
    assert rig.names() == ["good"]
    assert_given_up(rig, caplog)
    deadline_ms = rig.engine.next_deadline_ms()
    assert deadline_ms is not None
    assert rig.now_ms < deadline_ms <= rig.now_ms + 1_000, "only the lease is left to end"


def test_a_message_whose_last_attempt_is_over(
    rig: EngineRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.send("bad", body=BODY)
    assert len(rig.receive(lease_ms=10)) == 1
    rig.advance(10)
    rig.engine.groups.alter(
        "billing", max_attempts=1, backoff=None, clear_backoff=False, now_ms=rig.now_ms
    )
    damage(rig)
    assert rig.receive() == []
    assert in_flight(rig) == 0
    assert_given_up(rig, caplog)


def delayed_counts(rig: EngineRig) -> dict[str, int]:
    return {one.topic: one.count for one in rig.engine.pending.count(PendingFilter())}


@pytest.mark.parametrize("hit", ["body", "header", "topic"])
def test_a_damaged_delayed_message_is_no_longer_counted(rig: EngineRig, hit: str) -> None:
    rig.send("other", topic="mails", wait_ms=90_000)
    rig.send("bad", wait_ms=1_000, body=BODY)
    rig.send("last", topic="mails")
    rig.checkpoint()  # a restart does not look at what lies before
    if hit == "body":  # with the rest of the record believable, whatever else waits
        damage(rig)
    else:
        rig.engine.pending.cancel("other", rig.now_ms)
        rig.checkpoint()
        spoil(rig, 41 if hit == "topic" else 9)
    rig.advance(1_000)
    others = {"mails": 1} if hit == "body" else {}
    assert delayed_counts(rig) == others
    uses = rig.engine._state.uses.facts()
    rig.crash()
    assert delayed_counts(rig) == others
    assert rig.engine._state.uses.facts() == uses


def spoil(rig: EngineRig, at: int) -> None:
    """Flip bits in the record whose body asks for it, so many bytes from its begin."""
    assert isinstance(rig.files, MemoryFiles)
    segment = next(one for path, one in rig.files.inodes.items() if path.suffix == ".seg")
    segment.data[segment.data.index(BODY) - 92 + at] ^= 255


def test_a_broker_may_be_told_to_stop_instead() -> None:
    store = replace(SMALL_STORE, on_corrupt=OnCorrupt.STOP)
    rig = EngineRig(files=MemoryFiles(), store=store)
    rig.send("bad", body=BODY)
    damage(rig)
    with pytest.raises(StoreReadOnlyError, match="checksum does not match"):
        rig.receive()
    with pytest.raises(StoreReadOnlyError, match="stopped at a damaged message"):
        rig.engine.write()


def test_who_reads_in_bulk_is_told_where_it_goes_on(rig: EngineRig) -> None:
    rig.send("good-1")
    rig.send("bad", body=BODY)
    rig.send("good-2")
    damage(rig)
    read = partial(rig.engine.queues.read, "orders", "", 0, rows_max=9, bytes_max=1 << 20)
    assert [row.sys for row in read(start_offset=0, end_offset=3)] == [b"good-1"]
    with pytest.raises(IllegalOffsetError, match="are damaged and lost") as raised:
        read(start_offset=1, end_offset=3)
    assert (raised.value.earliest_offset, raised.value.next_offset) == (2, 3)
    assert [row.sys for row in read(start_offset=2, end_offset=3)] == [b"good-2"]
    rows, upto = rig.engine.queues.pull("orders", 0, 0, 9)
    assert ([row.sys for row in rows], upto) == ([b"good-1", b"good-2"], 3)


def test_a_dead_letter(rig: EngineRig) -> None:
    for name, body in (("one", b"body"), ("two", BODY), ("three", b"body")):
        rig.send(name, body=body)
        [held] = rig.receive()
        rig.engine.forward("billing", held.handle, rig.now_ms)
    rig.engine.write()
    assert isinstance(rig.files, MemoryFiles)
    segment = next(one for path, one in rig.files.inodes.items() if path.suffix == ".seg")
    segment.data[segment.data.rindex(BODY)] ^= 1  # the letter's copy, not the message
    letters = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert [letter.sys for letter in letters] == [b"one", b"three"]
    assert newest_letter(rig.engine, "billing", "one").sys == b"one"
    for change in (
        lambda: rig.engine.dead.get("billing", 1),
        lambda: rig.engine.dead.redrive("billing", 1, "", rig.now_ms),
    ):
        with pytest.raises(MessageNotFoundError, match="dead letter at offset 1 is lost"):
            change()
    rig.engine.dead.drop("billing", [1], rig.now_ms)


def test_a_receive_that_only_finds_damage_is_asked_again(rig: EngineRig) -> None:
    rig.send("bad", body=BODY)
    damage(rig)
    rig.engine.take_ready()
    assert rig.receive() == []
    assert rig.engine.take_ready().pairs == {("billing", "orders")}
