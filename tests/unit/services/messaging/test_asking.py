"""Who is shown another's half message: whoever may be, at the moment of asking."""

from collections.abc import Iterator
from typing import Final

import pytest

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.services.messaging.transaction import UNREAD_MAX
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.access_rig import AccessRig
from support.engine_rig import do_due
from support.fake_call import FakeCall
from support.telemetry_stream import TelemetryStream, producer_of
from support.wire_requests import message, send

SEND: Final = "/apache.rocketmq.v2.MessagingService/SendMessage"
OTHER, OTHER_SECRET = "other", "the-secret-of-other"
BODY: Final = b"for my eyes only"


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    """Two users who may publish, nothing else."""
    made = AccessRig()
    made.engine.users.create(OTHER, OTHER_SECRET, admin=False, now_ms=made.now_ms)
    for user in ("shop", OTHER):
        made.engine.users.grant(user, Kind.TOPIC, "orders", frozenset({Right.PUB}), made.now_ms)
    yield made
    made.close()


def other(rig: AccessRig) -> FakeCall:
    return rig.by(OTHER, OTHER_SECRET, client_id="other@1")


def sent_half(rig: AccessRig, message_id: str = "m-1", call: FakeCall | None = None) -> None:
    """By `shop`, unless another call is given."""
    half = message("orders", BODY, message_id=message_id)
    half.system_properties.message_type = v2.TRANSACTION
    request = send([half])
    code = rig.code_of(SEND, request, service_pb2.SendMessageResponse, call or rig.by())
    assert code == 20000


def due(rig: AccessRig) -> None:
    """A producer is to be asked; all that are there were looked at."""
    rig.now_ms += rig.config.transaction.check_interval_ms
    do_due(rig.engine, rig.now_ms)
    rig.services.on_second()


def asked(stream: TelemetryStream) -> list[bytes]:
    return [each.recover_orphaned_transaction_command.message.body for each in stream.commands()]


def open_stream(rig: AccessRig, call: FakeCall) -> TelemetryStream:
    stream = TelemetryStream(rig, call)
    assert stream.settings(producer_of("orders")) == 20000
    return stream


def test_who_may_only_publish_is_asked_about_its_own(rig: AccessRig) -> None:
    sent_half(rig)
    theirs = open_stream(rig, other(rig))
    due(rig)
    assert asked(theirs) == []
    mine = open_stream(rig, rig.by())
    due(rig)
    assert asked(mine) == [BODY]
    assert asked(theirs) == []
    mine.close()
    theirs.close()


@pytest.mark.parametrize("right", [Right.SUB, Right.BODY])
def test_who_may_read_the_topic_too_is_asked_about_all(rig: AccessRig, right: Right) -> None:
    sent_half(rig)
    rig.engine.users.grant(OTHER, Kind.TOPIC, "orders", frozenset({right}), rig.now_ms)
    theirs = open_stream(rig, other(rig))
    due(rig)
    assert asked(theirs) == [BODY]
    theirs.close()


def test_a_right_is_looked_at_with_every_question(rig: AccessRig) -> None:
    users = rig.engine.users
    sent_half(rig)
    mine = open_stream(rig, rig.by())
    due(rig)
    assert asked(mine) == [BODY]
    users.revoke("shop", Kind.TOPIC, "orders", frozenset({Right.PUB}), rig.now_ms)
    due(rig)
    assert asked(mine) == []
    rig.grant(Kind.TOPIC, "orders", Right.PUB)
    due(rig)
    assert asked(mine) == [BODY]
    mine.close()


@pytest.mark.parametrize("change", ["disabled", "rotated", "deleted"])
def test_a_user_who_is_none_any_more_is_not_asked(rig: AccessRig, change: str) -> None:
    users = rig.engine.users
    sent_half(rig)
    mine = open_stream(rig, rig.by())
    if change == "disabled":
        users.alter("shop", admin=None, disabled=True, now_ms=rig.now_ms)
    elif change == "rotated":
        users.rotate("shop", "another-secret", rig.now_ms)
    else:
        users.delete("shop", rig.now_ms)
    due(rig)
    assert asked(mine) == []
    mine.close()


def test_those_nobody_may_be_asked_about_do_not_hold_up_the_others(rig: AccessRig) -> None:
    for number in range(300):  # more than one round asks about
        sent_half(rig, f"m-{number}")
    sent_half(rig, "theirs", other(rig))
    theirs = open_stream(rig, other(rig))
    due(rig)
    rig.services.on_second()
    assert asked(theirs) == [BODY]
    theirs.close()


def test_a_producer_that_does_not_read_does_not_hold_up_those_of_others(rig: AccessRig) -> None:
    for number in range(UNREAD_MAX + 300):  # it is asked about UNREAD_MAX, and then no more
        sent_half(rig, f"m-{number}")
    sent_half(rig, "theirs", other(rig))
    mine, theirs = open_stream(rig, rig.by()), open_stream(rig, other(rig))
    due(rig)
    rig.services.on_second()
    assert asked(theirs) == [BODY]
    assert len(asked(mine)) == UNREAD_MAX
    mine.close()
    theirs.close()


@pytest.mark.parametrize("end", ["killed", "killed behind a checkpoint", "stopped"])
def test_who_sent_it_is_known_after_a_restart(rig: AccessRig, end: str) -> None:
    sent_half(rig)
    if end == "killed behind a checkpoint":
        rig.checkpoint()
    if end == "stopped":
        rig.restart()
    else:
        rig.crash()
    rig.assemble_again()
    theirs, mine = open_stream(rig, other(rig)), open_stream(rig, rig.by())
    due(rig)
    assert (asked(theirs), asked(mine)) == ([], [BODY])
    theirs.close()
    mine.close()


def test_where_nobody_sent_it_by_name_the_right_to_publish_has_to_do(rig: AccessRig) -> None:
    """Sent without users, or to an older version: else it would end by age alone."""
    rig.send_half("m-1")
    theirs = open_stream(rig, other(rig))
    due(rig)
    assert len(asked(theirs)) == 1
    theirs.close()
