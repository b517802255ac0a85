"""A record that rotted after it was stored: its message is given up, loudly; the others go on."""

import pytest

from latermq_broker.engine.model import PendingFilter
from support.engine_rig import EngineRig
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
    assert rig.engine._state.unreadable_count == 1
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


def test_a_delayed_message(rig: EngineRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.send("bad", wait_ms=1_000, body=BODY)
    rig.send("good", wait_ms=1_000)
    damage(rig)
    rig.advance(1_000)
    assert rig.names() == ["good"]
    assert_given_up(rig, caplog)
    assert rig.engine.next_deadline_ms() == rig.now_ms + 1_000, "only the lease is left to end"


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
