"""What a right gives is what it names: letters come to no new reader, answers name no stranger."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from google.protobuf.message import Message

from latermq_broker.catalog.access import Kind, Right, User
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.engine.retention.keepers import Keeper
from latermq_broker.services.clients.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import broker_pb2, dead_letter_pb2, group_pb2, limit_pb2
from support.access_rig import USER, AccessRig

OK, FORBIDDEN, TOPIC_NOT_FOUND = 20000, 40300, 40402
T, G = Kind.TOPIC, Kind.GROUP
PUB, SUB, BROWSE, BODY, REDRIVE = Right.PUB, Right.SUB, Right.BROWSE, Right.BODY, Right.REDRIVE
REDRIVE_PATH: Final = "/latermq.v1.DeadLetters/RedriveDeadLetters"


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


def asked(rig: AccessRig, path: str, request: Message, response: type[Any]) -> Any:
    return response.FromString(rig.raw(path, request.SerializeToString(), rig.by()))


def redriven(rig: AccessRig, to_topic: str, **fields: Any) -> Any:
    request = dead_letter_pb2.RedriveDeadLettersRequest(
        group="billing", to_topic=to_topic, **fields
    )
    return rig.stream(REDRIVE_PATH, request, dead_letter_pb2.DeadLetterProgress, rig.by())[-1]


def letters(rig: AccessRig) -> int:
    group = rig.engine.catalog.require_group("billing")
    return rig.engine.groups.dead_letter_count(group)


@pytest.mark.parametrize(
    ("more", "to_topic", "goes"),
    [
        ((), "mine", False),
        ((), "orders", True),  # where it came from
        (((G, BROWSE),), "mine", False),
        (((G, BODY),), "mine", False),  # shows nothing without browse
        (((G, BROWSE), (G, BODY)), "mine", True),
        (((T, SUB),), "mine", True),  # it could read the topic that the letter came from
        (((T, BODY),), "mine", True),
        (((T, BROWSE),), "mine", False),
    ],
)
def test_a_letter_goes_where_the_caller_may_have_it_read(
    rig: AccessRig, more: tuple[tuple[Kind, Right], ...], to_topic: str, goes: bool
) -> None:
    rig.die("m-1")
    rig.engine.ensure_topic("mine", rig.now_ms)
    rig.grant(G, "billing", REDRIVE)
    rig.grant(T, "orders", PUB)
    rig.grant(T, "mine", PUB)
    for kind, right in more:
        rig.grant(kind, "orders" if kind is T else "billing", right)
    for dry_run in (True, False):
        progress = redriven(rig, to_topic, dry_run=dry_run)
        assert progress.status.code == (OK if goes else FORBIDDEN)
        assert progress.changed_count == int(goes)
        assert "orders" not in progress.status.message
    assert letters(rig) == int(not goes)


def test_a_filter_leaves_out_the_letters_of_other_topics(rig: AccessRig) -> None:
    rig.die("m-1", topic="others")
    rig.die("m-2", topic="orders")
    rig.grant(G, "billing", REDRIVE)
    rig.grant(T, "orders", PUB)
    assert redriven(rig, "orders").status.code == FORBIDDEN
    assert letters(rig) == 2
    filter = dead_letter_pb2.DeadLetterFilter(origin_topic="orders")
    progress = redriven(rig, "orders", filter=filter)
    assert (progress.status.code, progress.changed_count, letters(rig)) == (OK, 1, 1)


def test_a_letter_that_stays_names_its_topic_to_who_may_see_it(rig: AccessRig) -> None:
    rig.die("m-1", topic="others")
    rig.engine.topics.delete("others", rig.now_ms)
    rig.grant(G, "billing", REDRIVE)
    progress = redriven(rig, "")
    assert (progress.failed_count, progress.last_error) == (1, "offset 0: TOPIC_NOT_FOUND")
    rig.grant(G, "billing", BROWSE)
    assert redriven(rig, "").last_error == "offset 0: topic not found: others"


def test_the_broker_names_who_keeps_old_messages_to_those_with_a_right(rig: AccessRig) -> None:
    rig.engine.retention.kept_for = Keeper("billing", "orders", 0)

    def kept_for() -> tuple[str, str]:
        request, response = broker_pb2.GetBrokerRequest(), broker_pb2.GetBrokerResponse
        seen = asked(rig, "/latermq.v1.Brokers/GetBroker", request, response).broker.retention
        return seen.kept_for_group, seen.kept_for_topic

    assert kept_for() == ("", "")
    rig.grant(G, "billing", SUB)
    assert kept_for() == ("", "")
    rig.grant(T, "orders", PUB)
    assert kept_for() == ("billing", "orders")


def session(rig: AccessRig, client_id: str, topic: str, owner: str) -> None:
    rig.sessions.put(
        Session(
            client_id=client_id, kind=ClientKind.PUSH_CONSUMER, group="billing",
            topics=frozenset({topic}), settings=v2.Settings(), language="PYTHON", version="",
            seen_ms=rig.now_ms, peer="192.0.2.1:1", service="shop",
            owner=User(access_key=owner, secret=""),
        )
    )  # fmt: skip
    rig.sessions.attach(client_id, rig.sessions.open_stream())


def test_limits_are_listed_of_ones_own(rig: AccessRig) -> None:
    session(rig, "c-mine", "orders", USER)
    session(rig, "c-other", "orders", "other")
    limits = [
        Limit(scope=scope, name=name, parked_polls=5)
        for scope, names in (
            (Scope.USER, ("*", USER, "other")),
            (Scope.GROUP, ("*", "billing", "payroll")),
            (Scope.CLIENT, ("*", "c-mine", "c-other", "c-gone")),
        )
        for name in names
    ]
    for limit in limits:
        rig.engine.limits.set(limit, rig.now_ms)
    rig.grant(G, "billing", SUB)
    request = limit_pb2.ListLimitsRequest()
    answer = asked(rig, "/latermq.v1.Limits/ListLimits", request, limit_pb2.ListLimitsResponse)
    assert [each.name for each in answer.limits] == ["*", "c-mine", "*", "billing", "*", USER]


def test_a_groups_workers_are_listed_by_topics_of_ones_own(rig: AccessRig) -> None:
    session(rig, "c-1", "orders", "other")
    session(rig, "c-2", "salaries", "other")
    rig.grant(G, "billing", SUB)
    rig.grant(T, "orders", SUB)
    request = group_pb2.ListServicesRequest(group="billing")

    def topics() -> list[str]:
        path, response = "/latermq.v1.Groups/ListServices", group_pb2.ListServicesResponse
        return [each.topic for each in asked(rig, path, request, response).services]

    assert topics() == ["orders"]
    rig.grant(G, "billing", BROWSE)
    assert topics() == ["orders", "salaries"]


def test_a_group_is_reset_on_topics_that_it_reads_or_the_caller_has_a_right_on(
    rig: AccessRig,
) -> None:
    rig.make_group()
    rig.send_message("m-1", topic="salaries")
    rig.grant(G, "billing", Right.PURGE)
    request = group_pb2.ResetGroupRequest(name="billing", topic="salaries")

    def code() -> int:
        path, response = "/latermq.v1.Groups/ResetGroup", group_pb2.ResetGroupResponse
        return int(asked(rig, path, request, response).status.code)

    assert code() == TOPIC_NOT_FOUND
    rig.receive(topic="salaries", count=1)
    assert code() == OK
