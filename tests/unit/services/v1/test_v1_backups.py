"""latermq.v1 Backups (backup.proto): the log's bytes, and the pace at which they are given."""

from collections.abc import Iterator

import pytest

from latermq_broker.services.v1.v1_backups import PACE_MAX, PACE_MIN
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import backup_pb2
from support.v1_rig import V1Rig

BACKUPS = "/latermq.v1.Backups"


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    rig.send_message("m")
    yield rig
    rig.close()


def read(rig: V1Rig, begin: int, end: int, pace: int = 0) -> list[backup_pb2.ReadLogResponse]:
    request = backup_pb2.ReadLogRequest(begin=begin, end=end, bytes_per_second=pace)
    return rig.stream(f"{BACKUPS}/ReadLog", request, backup_pb2.ReadLogResponse)


def test_what_was_stored_before_is_given(rig: V1Rig) -> None:
    request = backup_pb2.BeginBackupRequest()
    cut = rig.call(f"{BACKUPS}/BeginBackup", request, backup_pb2.BeginBackupResponse)
    assert cut.status.code == Code.OK
    given = b"".join(each.data for each in read(rig, cut.segments[0].base, cut.position))
    assert len(given) == cut.position - cut.segments[0].base
    assert b"body" in given


@pytest.mark.parametrize("pace", [-1, 1, PACE_MIN - 1, PACE_MAX + 1])
def test_a_pace_at_which_nothing_ends_is_refused(rig: V1Rig, pace: int) -> None:
    [refused] = read(rig, 0, 100, pace)
    assert refused.status.code == Code.BAD_REQUEST
    assert str(PACE_MIN) in refused.status.message


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (5, 5), (7, 5)])
def test_what_is_no_range_is_refused(rig: V1Rig, begin: int, end: int) -> None:
    [refused] = read(rig, begin, end)
    assert refused.status.code == Code.BAD_REQUEST
