"""latermq.v1 Groups (group.proto)."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.engine.catalog.groups import PAIRS_AT_ONCE
from latermq_broker.engine.state.model import Failure
from latermq_broker.services.clients.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import group_pb2
from support.v1_rig import V1Rig

GROUPS = "/latermq.v1.Groups"

LADDER = group_pb2.Backoff(ladder=group_pb2.Backoff.Ladder(delays_ms=[1000, 5000]), jitter=0.5)
EXPONENTIAL = group_pb2.Backoff(
    exponential=group_pb2.Backoff.Exponential(initial_ms=5000, max_ms=60_000, multiplier=2)
)
FIXED = group_pb2.Backoff(fixed_ms=700)


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    yield rig
    rig.close()


def create(rig: V1Rig, name: str = "billing", **fields: Any) -> group_pb2.GroupResponse:
    request = group_pb2.CreateGroupRequest(group=group_pb2.Group(name=name, **fields))
    return rig.call(f"{GROUPS}/CreateGroup", request, group_pb2.GroupResponse)


def alter(rig: V1Rig, name: str = "billing", **fields: Any) -> group_pb2.GroupResponse:
    request = group_pb2.AlterGroupRequest(name=name, **fields)
    return rig.call(f"{GROUPS}/AlterGroup", request, group_pb2.GroupResponse)


def get(rig: V1Rig, name: str = "billing") -> group_pb2.GroupResponse:
    request = group_pb2.GetGroupRequest(name=name)
    return rig.call(f"{GROUPS}/GetGroup", request, group_pb2.GroupResponse)


def reset(rig: V1Rig, to_ms: int, topic: str = "orders") -> group_pb2.ResetGroupResponse:
    request = group_pb2.ResetGroupRequest(name="billing", topic=topic, to_ms=to_ms)
    return rig.call(f"{GROUPS}/ResetGroup", request, group_pb2.ResetGroupResponse)


def test_a_group_gets_the_brokers_attempts_and_no_backoff_of_its_own(rig: V1Rig) -> None:
    made = create(rig)
    assert made.status.code == Code.OK
    assert made.group.max_attempts == rig.config.delivery.max_attempts
    assert not made.group.HasField("backoff")


@pytest.mark.parametrize("backoff", [LADDER, EXPONENTIAL, FIXED])
def test_each_backoff_is_kept_as_it_was_given(rig: V1Rig, backoff: group_pb2.Backoff) -> None:
    create(rig, backoff=backoff, max_attempts=5)
    kept = get(rig).group
    assert (kept.backoff, kept.max_attempts) == (backoff, 5)


def test_the_same_again_is_ok_and_another_policy_is_refused(rig: V1Rig) -> None:
    first = create(rig, backoff=FIXED)
    assert create(rig, backoff=FIXED) == first
    assert create(rig, backoff=LADDER).status.code == Code.BAD_REQUEST
    assert create(rig, max_attempts=9).status.code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "a b"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"name": "CID_RMQ_SYS_x"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"on_dead": group_pb2.PARK}, Code.BAD_REQUEST),
        ({"max_attempts": -1}, Code.BAD_REQUEST),
        ({"max_attempts": 1001}, Code.BAD_REQUEST),
        ({"weight": -1}, Code.BAD_REQUEST),
        ({"weight": 101}, Code.BAD_REQUEST),
        ({"backoff": group_pb2.Backoff(jitter=0.5)}, Code.BAD_REQUEST),
        ({"backoff": group_pb2.Backoff(fixed_ms=-1)}, Code.BAD_REQUEST),
        ({"backoff": group_pb2.Backoff(fixed_ms=1, jitter=float("nan"))}, Code.BAD_REQUEST),
        ({"backoff": group_pb2.Backoff(ladder=group_pb2.Backoff.Ladder())}, Code.BAD_REQUEST),
    ],
)
def test_what_cannot_be_created(rig: V1Rig, fields: dict[str, Any], code: Code) -> None:
    assert create(rig, **{"name": "billing", **fields}).status.code == code


def test_altering_replaces_what_is_said(rig: V1Rig) -> None:
    create(rig, backoff=FIXED, max_attempts=5)
    assert alter(rig, max_attempts=7).group.backoff == FIXED
    assert alter(rig, backoff=LADDER).group.max_attempts == 7
    assert not alter(rig, clear_backoff=True).group.HasField("backoff")
    assert alter(rig, clear_backoff=True, backoff=LADDER).status.code == Code.BAD_REQUEST
    assert alter(rig, name="nobody").status.code == Code.CONSUMER_GROUP_NOT_FOUND


def test_a_groups_weight_stays_until_another_is_said(rig: V1Rig) -> None:
    assert create(rig).group.weight == 1
    assert alter(rig, weight=10).group.weight == 10
    assert alter(rig, max_attempts=7).group.weight == 10
    assert create(rig, max_attempts=7).group.weight == 10
    assert alter(rig, weight=101).status.code == Code.BAD_REQUEST
    assert get(rig).group.weight == 10
    rig.checkpoint()
    rig.restart()
    assert rig.engine.catalog.require_group("billing").weight == 10


def test_showing_tells_its_progress_topic_by_topic(rig: V1Rig) -> None:
    rig.make_group(wait_ms=60_000)
    for number in range(4):
        rig.send_message(f"m-{number}")
    rig.fail(Failure("TimeoutError", "no answer"))
    rig.receive(count=1)
    (progress,) = get(rig).group.topics
    assert progress.topic == "orders"
    assert (progress.ready_count, progress.in_flight_count, progress.backoff_count) == (2, 1, 1)
    assert progress.last_consumed_at_ms == rig.now_ms


def test_dead_letters_count_until_they_are_redriven_or_dropped(rig: V1Rig) -> None:
    rig.die("m-1")
    rig.die("m-2")
    assert get(rig).group.dead_letter_count == 2
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    assert get(rig).group.dead_letter_count == 1


def test_listing_is_by_name_in_pages(rig: V1Rig) -> None:
    for name in ("b", "a", "c"):
        create(rig, name)
    request = group_pb2.ListGroupsRequest(page_size=2)
    page = rig.call(f"{GROUPS}/ListGroups", request, group_pb2.ListGroupsResponse)
    assert [group.name for group in page.groups] == ["a", "b"]
    request.page_token = page.next_page_token
    page = rig.call(f"{GROUPS}/ListGroups", request, group_pb2.ListGroupsResponse)
    assert [group.name for group in page.groups] == ["c"]
    assert not page.next_page_token


def listing(rig: V1Rig, **fields: Any) -> group_pb2.ListGroupsResponse:
    request = group_pb2.ListGroupsRequest(**fields)
    return rig.call(f"{GROUPS}/ListGroups", request, group_pb2.ListGroupsResponse)


def names_of(page: group_pb2.ListGroupsResponse) -> list[str]:
    assert page.status.code == Code.OK
    assert not page.next_page_token
    return [group.name for group in page.groups]


def test_listing_is_by_what_needs_a_look_first(rig: V1Rig) -> None:
    for name in ("billing", "mails", "idle"):
        rig.make_group(name, attempts=1 if name == "billing" else 3)
    rig.send_message("m-1")
    rig.receive("mails")  # which has read all there is, and is not behind
    rig.advance(60_000)
    rig.fail(Failure("Broken", "it broke"))  # at once a dead letter
    rig.send_message("m-2")
    rig.send_message("m-3")
    rig.fail(group="mails")
    rig.fail(group="mails")
    orders = (
        (group_pb2.BY_AGE, ["billing", "mails", "idle"]),  # mails was given each once
        (group_pb2.BY_READY, ["mails", "billing", "idle"]),
        (group_pb2.BY_FAILURES, ["mails", "billing", "idle"]),
        (group_pb2.BY_DEAD_LETTERS, ["billing", "idle", "mails"]),
    )
    for order, names in orders:
        assert names_of(listing(rig, order=order)) == names
        assert names_of(listing(rig, order=order, page_size=2)) == names[:2]


def test_only_by_name_there_is_a_second_page(rig: V1Rig) -> None:
    page = listing(rig, order=group_pb2.BY_AGE, page_token="YQ")
    assert page.status.code == Code.BAD_REQUEST
    assert listing(rig, order=99).status.code == Code.BAD_REQUEST


def test_those_are_listed_that_were_named_and_are_there(rig: V1Rig) -> None:
    for name in ("b", "a", "c"):
        create(rig, name)
    assert names_of(listing(rig, names=["c", "gone", "a", "c"])) == ["a", "c"]
    page = listing(rig, names=[f"g-{number}" for number in range(1_001)])
    assert page.status.code == Code.BAD_REQUEST


def test_a_negative_page_size_is_refused(rig: V1Rig) -> None:
    request = group_pb2.ListGroupsRequest(page_size=-1)
    page = rig.call(f"{GROUPS}/ListGroups", request, group_pb2.ListGroupsResponse)
    assert page.status.code == Code.BAD_REQUEST


def test_a_reset_goes_to_the_first_message_stored_then(rig: V1Rig) -> None:
    rig.make_group()
    rig.send_message("m-0")
    rig.advance(1000)
    moment_ms = rig.now_ms
    rig.send_message("m-1")
    rig.receive()
    assert list(reset(rig, moment_ms).offsets) == [1]
    assert len(rig.receive()) == 1
    assert list(reset(rig, 0).offsets) == [0]
    assert len(rig.receive()) == 2
    assert list(reset(rig, rig.now_ms + 1).offsets) == [2]
    assert rig.receive() == []


def test_a_reset_of_what_is_not_there_says_so(rig: V1Rig) -> None:
    assert reset(rig, 0).status.code == Code.CONSUMER_GROUP_NOT_FOUND
    rig.make_group()
    assert reset(rig, 0, topic="nothing").status.code == Code.TOPIC_NOT_FOUND
    assert reset(rig, -1).status.code == Code.BAD_REQUEST


def test_deleting_keeps_the_dead_letters(rig: V1Rig) -> None:
    rig.die("m-1")
    request = group_pb2.DeleteGroupRequest(name="billing")

    def delete() -> group_pb2.DeleteGroupResponse:
        return rig.call(f"{GROUPS}/DeleteGroup", request, group_pb2.DeleteGroupResponse)

    assert delete().status.code == Code.OK
    assert delete().status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert get(rig).status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert len(rig.receive("another", topic="%DLQ%billing")) == 1


def test_a_long_list_is_made_in_parts_between_which_others_have_their_turn(rig: V1Rig) -> None:
    for name in ("orders", "bills", "mails"):
        rig.send_message("m-1", topic=name)
    topics = [each for each in rig.engine.catalog.topics() if not each.internal]
    groups = [create(rig, f"g-{number:03}") for number in range(PAIRS_AT_ONCE // 2)]
    kept = rig.engine.catalog.groups()
    for each in kept:
        for topic in topics:
            rig.engine._state.subscription(each.id, topic.id)
    parts = rig.engine.groups.progress(kept, rig.now_ms)
    assert len(next(parts)) == PAIRS_AT_ONCE
    rig.engine.groups.delete(groups[-1].group.name, rig.now_ms)  # between two of them
    assert [len(part) for part in parts] == [len(groups) - 1]  # of the last topic
    request = group_pb2.ListGroupsRequest(page_size=1_000)
    listed = rig.call(f"{GROUPS}/ListGroups", request, group_pb2.ListGroupsResponse).groups
    assert [each.progress.ready_count for each in listed] == [3] * (len(groups) - 1)


def test_it_is_shown_which_services_share_a_topic(rig: V1Rig) -> None:
    for client_id, service, group, is_there in (
        ("c3", "billing", "billing", True),
        ("c1", "billing", "billing", True),
        ("c2", "module shop", "billing", True),
        ("c4", "gone", "billing", False),
        ("c5", "", "billing", True),
        ("c6", "other", "another group", True),
    ):
        session = Session(
            client_id=client_id, kind=ClientKind.PUSH_CONSUMER, group=group,
            topics=frozenset({"orders"}), settings=v2.Settings(), language="PYTHON", version="",
            seen_ms=rig.now_ms, peer=f"192.0.2.1:{client_id}", service=service,
        )  # fmt: skip
        rig.sessions.put(session)
        if is_there:
            rig.sessions.attach(client_id, rig.sessions.open_stream())
    request = group_pb2.ListServicesRequest(group="billing")
    answer = rig.call(f"{GROUPS}/ListServices", request, group_pb2.ListServicesResponse)
    create(rig)
    (topic,) = get(rig).group.services
    assert list(answer.services) == [topic]
    assert topic.topic == "orders"
    assert [
        (use.service, use.client_id, use.client_count, use.address) for use in topic.services
    ] == [
        ("billing", "c1", 2, "192.0.2.1:c1"),
        ("module shop", "c2", 1, "192.0.2.1:c2"),
    ]
