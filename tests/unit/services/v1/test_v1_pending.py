"""latermq.v1 Pending (pending.proto)."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.engine.state.model import Failure
from latermq_broker.engine.views import pending_place
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import pending_pb2
from support.v1_rig import V1Rig

PENDING = "/latermq.v1.Pending"
HOUR_MS = 3_600_000


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    rig.make_group(wait_ms=60_000)
    yield rig
    rig.close()


def page(rig: V1Rig, size: int = 0, token: str = "", **filter: Any) -> Any:
    request = pending_pb2.ListPendingRequest(
        filter=pending_pb2.PendingFilter(**filter), page_size=size, page_token=token
    )
    return rig.call(f"{PENDING}/ListPending", request, pending_pb2.ListPendingResponse)


def ids(rig: V1Rig, **filter: Any) -> list[str]:
    listed = page(rig, **filter)
    assert listed.status.code == Code.OK, listed.status
    return [message.message_id for message in listed.messages]


def change(rig: V1Rig, what: str, *names: str, due_at_ms: int = 0) -> Any:
    request = pending_pb2.ChangePendingRequest(ids=names, due_at_ms=due_at_ms)
    return rig.call(f"{PENDING}/{what}Pending", request, pending_pb2.ChangePendingResponse)


def one_of_each(rig: V1Rig) -> None:
    """`wait` is delayed by an hour, `retry` in backoff for a minute, `lease` held for a second."""
    rig.send_message("wait", wait_ms=HOUR_MS, tag="later", keys=["k-1"], body=b"12345")
    rig.send_message("retry")
    rig.fail(Failure("TimeoutError", "no answer"))
    rig.send_message("lease")
    rig.receive(lease_ms=1_000)


def test_everything_that_waits_is_listed_by_due_time(rig: V1Rig) -> None:
    one_of_each(rig)
    lease, retry, wait = page(rig).messages
    assert (lease.message_id, lease.kind) == ("lease", pending_pb2.IN_FLIGHT)
    assert (lease.due_at_ms, lease.attempt) == (rig.now_ms + 1_000, 1)
    assert (retry.message_id, retry.kind) == ("retry", pending_pb2.BACKOFF)
    assert (retry.topic, retry.group, retry.max_attempts) == ("orders", "billing", 3)
    assert (retry.last_failure_class, retry.last_failure_text) == ("TimeoutError", "no answer")
    assert (wait.message_id, wait.kind, wait.group) == ("wait", pending_pb2.DELAYED, "")
    assert (wait.tag, list(wait.keys), wait.body_size, wait.attempt) == ("later", ["k-1"], 5, 0)


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ({"kind": pending_pb2.DELAYED}, ["wait"]),
        ({"kind": pending_pb2.BACKOFF}, ["retry"]),
        ({"kind": pending_pb2.IN_FLIGHT}, ["lease"]),
        ({"group": "billing"}, ["lease", "retry"]),
        ({"topic": "orders"}, ["lease", "retry", "wait"]),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ["wait"]),
        ({"topic": "%RETRY%billing"}, ["retry"]),
        ({"delay_level": 3}, []),
    ],
)
def test_a_filter_narrows_it(rig: V1Rig, filter: dict[str, Any], wanted: list[str]) -> None:
    one_of_each(rig)
    assert ids(rig, **filter) == wanted


def test_a_time_and_a_level_narrow_it(rig: V1Rig) -> None:
    one_of_each(rig)
    rig.send_message("level", level=3)  # 10 s
    soon_ms = rig.now_ms + 30_000
    assert ids(rig, due_before_ms=soon_ms) == ["lease", "level"]
    assert ids(rig, delay_level=3) == ["level"]
    for filter, total in (
        (pending_pb2.PendingFilter(due_before_ms=soon_ms), 2),
        (pending_pb2.PendingFilter(delay_level=3), 1),
        (pending_pb2.PendingFilter(), 4),
    ):
        request = pending_pb2.CountPendingRequest(filter=filter)
        counted = rig.call(f"{PENDING}/CountPending", request, pending_pb2.CountPendingResponse)
        assert counted.total == total


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ({"topic": "nothing"}, Code.TOPIC_NOT_FOUND),
        ({"group": "nobody"}, Code.CONSUMER_GROUP_NOT_FOUND),
        ({"topic": "%RETRY%nobody"}, Code.CONSUMER_GROUP_NOT_FOUND),
        ({"kind": 9}, Code.BAD_REQUEST),
        ({"due_before_ms": -1}, Code.BAD_REQUEST),
    ],
)
def test_unknown_is_never_reported_as_empty(rig: V1Rig, filter: dict[str, Any], code: Code) -> None:
    assert page(rig, **filter).status.code == code
    request = pending_pb2.CountPendingRequest(filter=pending_pb2.PendingFilter(**filter))
    counted = rig.call(f"{PENDING}/CountPending", request, pending_pb2.CountPendingResponse)
    assert counted.status.code == code


@pytest.mark.parametrize("rows_max", [pending_place.GROUP_ROWS_MAX, 0])
def test_what_waits_of_a_group_is_found_among_all_that_waits(
    rig: V1Rig, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """By looking at its deliveries alone, or at all of them, where there are very many."""
    monkeypatch.setattr(pending_place, "GROUP_ROWS_MAX", rows_max)
    groups = ("slow", "mails", "idle")
    rig.make_group("slow", wait_ms=30_000)
    rig.make_group("mails", wait_ms=5)
    rig.make_group("idle")
    for number in range(12):
        rig.send_message(f"m-{number:02}")
        rig.send_message(f"later-{number}", wait_ms=90_000)
    for group in ("slow", "mails"):
        rig.fail(group=group)
        rig.fail(group=group)
        rig.receive(group, count=3)
        rig.advance(20)  # what failed in mails is ready again
    every = page(rig, 1_000).messages
    for group in groups:
        own = [each.message_id for each in every if each.group == group]
        assert len(own) == (0 if group == "idle" else 5)
        assert ids(rig, group=group) == own
        for kind in (pending_pb2.BACKOFF, pending_pb2.IN_FLIGHT):
            of_kind = [
                each.message_id for each in every if (each.group, each.kind) == (group, kind)
            ]
            assert ids(rig, group=group, kind=kind) == of_kind
        assert ids(rig, group=group, kind=pending_pb2.DELAYED) == []
        token, found = "", list[str]()
        while len(found) < len(own):
            part = page(rig, 2, token, group=group)
            found += [each.message_id for each in part.messages]
            token = part.next_page_token
        assert found == own


def test_pages_follow_each_other(rig: V1Rig) -> None:
    for number in range(5):
        rig.send_message(f"m-{number}", wait_ms=1_000 * (number + 1))
    first = page(rig, size=2)
    second = page(rig, size=2, token=first.next_page_token)
    third = page(rig, size=2, token=second.next_page_token)
    assert [message.message_id for each in (first, second, third) for message in each.messages] == [
        f"m-{number}" for number in range(5)
    ]
    assert not third.next_page_token
    assert page(rig, token="nonsense").status.code == Code.BAD_REQUEST


def test_counts_are_by_kind_topic_and_group(rig: V1Rig) -> None:
    one_of_each(rig)
    rig.send_message("other", topic="mails", wait_ms=5_000)
    request = pending_pb2.CountPendingRequest()
    counted = rig.call(f"{PENDING}/CountPending", request, pending_pb2.CountPendingResponse)
    assert counted.total == 4
    assert {(c.kind, c.topic, c.group): (c.count, c.next_due_at_ms) for c in counted.counts} == {
        (pending_pb2.DELAYED, "mails", ""): (1, rig.now_ms + 5_000),
        (pending_pb2.DELAYED, "orders", ""): (
            1,
            page(rig, kind=1, topic="orders").messages[0].due_at_ms,
        ),
        (pending_pb2.BACKOFF, "orders", "billing"): (1, page(rig, kind=2).messages[0].due_at_ms),
        (pending_pb2.IN_FLIGHT, "orders", "billing"): (1, rig.now_ms + 1_000),
    }


def test_cancelled_is_never_delivered(rig: V1Rig) -> None:
    rig.send_message("wait", wait_ms=1_000)
    (waiting,) = page(rig).messages
    changed = change(rig, "Cancel", waiting.pending_id)
    assert changed.status.code == Code.OK
    assert changed.results[0].message_id == "wait"
    rig.advance(10_000)
    assert rig.receive() == []
    assert change(rig, "Cancel", waiting.pending_id).status.code == Code.MESSAGE_NOT_FOUND


def test_a_cancelled_retry_is_done_for_its_group(rig: V1Rig) -> None:
    rig.send_message("retry")
    rig.fail(Failure("E", "x"))
    assert change(rig, "Cancel", "retry").status.code == Code.OK  # a message id names it too
    rig.advance(HOUR_MS)
    assert rig.receive() == []


def test_expedited_is_due_now(rig: V1Rig) -> None:
    rig.send_message("wait", wait_ms=HOUR_MS)
    rig.send_message("retry")
    rig.fail(Failure("E", "x"))
    assert (
        change(rig, "Expedite", *[m.pending_id for m in page(rig).messages]).status.code == Code.OK
    )
    rig.advance(0)
    assert len(rig.receive()) == 2


def test_postponed_is_due_then_and_not_before(rig: V1Rig) -> None:
    rig.send_message("wait", wait_ms=1_000)
    due_ms = rig.now_ms + 60_000
    assert change(rig, "Postpone", "wait", due_at_ms=due_ms).status.code == Code.OK
    rig.advance(59_999)
    assert rig.receive() == []
    rig.advance(1)
    assert len(rig.receive()) == 1


def test_each_id_has_its_result(rig: V1Rig) -> None:
    rig.send_message("wait", wait_ms=1_000)
    changed = change(rig, "Expedite", "wait", "unknown")
    assert changed.status.code == Code.MULTIPLE_RESULTS
    assert [result.status.code for result in changed.results] == [Code.OK, Code.MESSAGE_NOT_FOUND]
    assert [result.id for result in changed.results] == ["wait", "unknown"]


def test_on_a_full_store_each_id_that_found_no_room_says_so(rig: V1Rig) -> None:
    names = [f"wait-{number}" for number in range(40)]
    for name in names:
        rig.send_message(name, wait_ms=1_000)
    rig.fill()
    results = change(rig, "Expedite", *names).results
    assert [result.id for result in results] == names
    last = results[-1].status
    assert (last.code, last.message[:9]) == (Code.INTERNAL_SERVER_ERROR, "disk full")


@pytest.mark.parametrize("count", [0, 1001])
def test_one_to_a_thousand_ids(rig: V1Rig, count: int) -> None:
    assert change(rig, "Cancel", *["x"] * count).status.code == Code.BAD_REQUEST


def test_postponing_needs_a_time(rig: V1Rig) -> None:
    rig.send_message("wait", wait_ms=1_000)
    assert change(rig, "Postpone", "wait").status.code == Code.BAD_REQUEST
    beyond_ms = rig.now_ms + 41 * 366 * 24 * HOUR_MS
    assert change(rig, "Postpone", "wait", due_at_ms=beyond_ms).status.code == Code.BAD_REQUEST


def test_what_a_consumer_holds_is_not_ours_to_change(rig: V1Rig) -> None:
    rig.send_message("lease")
    rig.receive()
    (held,) = page(rig).messages
    for what in ("Cancel", "Expedite"):
        changed = change(rig, what, held.pending_id)
        assert changed.status.code == Code.PRECONDITION_FAILED


def test_a_half_message_is_listed_with_its_checks(rig: V1Rig) -> None:
    one_of_each(rig)
    sent = rig.send_half("half")
    (half,) = page(rig, kind=pending_pb2.HALF).messages
    assert (half.message_id, half.pending_id, half.group) == ("half", sent.transaction_id, "")
    assert (half.due_at_ms, half.checks, half.checks_max) == (rig.now_ms + 6_000, 0, 15)
    assert ids(rig) == ["lease", "half", "retry", "wait"]
    assert ids(rig, group="billing") == ["lease", "retry"]
    assert ids(rig, due_before_ms=rig.now_ms + 6_000) == ["lease"]
    rig.advance(6_000)
    rig.engine.transactions.asked(sent.position, "p-1", rig.now_ms)
    (half,) = page(rig, kind=pending_pb2.HALF).messages
    assert (half.due_at_ms, half.checks) == (rig.now_ms + 30_000, 1)


@pytest.mark.parametrize("by_message_id", [False, True])
def test_half_messages_are_committed_or_cancelled(rig: V1Rig, by_message_id: bool) -> None:
    names = {name: rig.send_half(name).transaction_id for name in ("m-1", "m-2")}
    named = dict.fromkeys(names, "") | ({name: name for name in names} if by_message_id else names)
    assert change(rig, "Commit", named["m-1"]).results[0].message_id == "m-1"
    assert change(rig, "Cancel", named["m-2"]).status.code == Code.OK
    assert change(rig, "Commit", names["m-2"]).status.code == Code.MESSAGE_NOT_FOUND
    assert len(rig.receive()) == 1
    assert ids(rig, kind=pending_pb2.HALF) == []


def test_only_half_messages_are_committed_and_only_that(rig: V1Rig) -> None:
    one_of_each(rig)
    rig.send_half("half")
    for name in ("wait", "retry"):
        assert change(rig, "Commit", name).status.code == Code.PRECONDITION_FAILED
    assert change(rig, "Expedite", "half").status.code == Code.PRECONDITION_FAILED
    later = change(rig, "Postpone", "half", due_at_ms=rig.now_ms + 1)
    assert later.status.code == Code.PRECONDITION_FAILED
