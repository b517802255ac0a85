"""What lasts for hours ends with the right to it: redrives, and the reading of queues."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from latermq_broker.catalog.access import Kind, Right
from latermq_proto.latermq.v1 import dead_letter_pb2, queue_pb2
from support.access_rig import USER, AccessRig

UNAUTHORIZED, FORBIDDEN = 40100, 40300
REDRIVE: Final = frozenset({Right.REDRIVE})


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


@pytest.mark.parametrize("withdrawn", ["disabled", "revoked"])
def test_a_job_ends_with_the_right_to_it(rig: AccessRig, withdrawn: str) -> None:
    """It may take hours, and an admin shuts somebody out at once."""
    rig.make_group()
    for number in range(8):
        rig.die(f"m-{number}")
    rig.grant(Kind.GROUP, "billing", *REDRIVE)
    users, written = rig.engine.users, rig.committer.written

    def now_ms() -> int:
        rig.now_ms += 500
        return rig.now_ms

    def third() -> Any:
        if rig.engine.groups.dead_letter_count(rig.engine.catalog.require_group("billing")) == 5:
            if withdrawn == "disabled":
                users.alter(USER, admin=None, disabled=True, now_ms=rig.now_ms)
            else:
                users.revoke(USER, Kind.GROUP, "billing", REDRIVE, rig.now_ms)
        return written()

    call = rig.by()
    rig.committer.now_ms = now_ms  # type: ignore[method-assign]
    rig.committer.written = third  # type: ignore[method-assign]
    request = dead_letter_pb2.RedriveDeadLettersRequest(group="billing", rate_per_second=1)
    told = rig.stream(
        "/latermq.v1.DeadLetters/RedriveDeadLetters",
        request,
        dead_letter_pb2.DeadLetterProgress,
        call,
    )
    codes = [each.status.code for each in told]
    assert codes[-1] == (UNAUTHORIZED if withdrawn == "disabled" else FORBIDDEN)
    assert set(codes[:-1]) == {20000}
    left = rig.engine.groups.dead_letter_count(rig.engine.catalog.require_group("billing"))
    assert 3 <= left <= 5


def test_a_read_ends_with_the_right_to_it(rig: AccessRig) -> None:
    for number in range(4):
        rig.send_message(f"m-{number}")
    rig.grant(Kind.TOPIC, "orders", Right.BROWSE, Right.BODY)
    synced = rig.committer.synced
    pages = iter(range(9))

    def second() -> Any:
        if next(pages) == 1:
            rig.engine.users.revoke(USER, Kind.TOPIC, "orders", frozenset({Right.BODY}), rig.now_ms)
        return synced()

    rig.committer.synced = second  # type: ignore[method-assign]
    request = queue_pb2.ReadQueueRequest(topic="orders", end_offset=4, page_rows_max=1)
    told = rig.stream("/latermq.v1.Queues/ReadQueue", request, queue_pb2.ReadQueuePage, rig.by())
    assert [(page.status.code, len(page.rows)) for page in told] == [(20000, 1), (FORBIDDEN, 0)]


def test_letters_go_to_another_topic_for_as_long_as_the_caller_may_read_them(
    rig: AccessRig,
) -> None:
    rig.make_group()
    for number in range(8):
        rig.die(f"m-{number}")
    rig.engine.ensure_topic("mine", rig.now_ms)
    rig.grant(Kind.GROUP, "billing", Right.REDRIVE, Right.BROWSE, Right.BODY)
    rig.grant(Kind.TOPIC, "mine", Right.PUB)
    users, written = rig.engine.users, rig.committer.written

    def left() -> int:
        group = rig.engine.catalog.require_group("billing")
        return rig.engine.groups.dead_letter_count(group)

    def now_ms() -> int:
        rig.now_ms += 500
        return rig.now_ms

    def third() -> Any:
        if left() == 5 and users.get(USER).may(Right.BODY, Kind.GROUP, "billing"):
            users.revoke(USER, Kind.GROUP, "billing", frozenset({Right.BODY}), rig.now_ms)
        return written()

    call = rig.by()
    rig.committer.now_ms = now_ms  # type: ignore[method-assign]
    rig.committer.written = third  # type: ignore[method-assign]
    request = dead_letter_pb2.RedriveDeadLettersRequest(
        group="billing", to_topic="mine", rate_per_second=1
    )
    told = rig.stream(
        "/latermq.v1.DeadLetters/RedriveDeadLetters",
        request,
        dead_letter_pb2.DeadLetterProgress,
        call,
    )
    assert told[-1].status.code == FORBIDDEN
    assert 3 <= left() <= 5
