"""A client id is its user's: no RPC does anything for another user under it."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.auth.access_rules import RULES
from latermq_broker.services.call.answers import MESSAGING
from latermq_broker.services.call.handler import MethodKind
from latermq_broker.services.registry import FILES
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.access_rig import AccessRig
from support.fake_call import FakeCall
from support.telemetry_stream import TelemetryStream, consumer_of, producer_of
from support.wire_requests import duration, resource

FORBIDDEN, OK, UNRECOGNIZED = 40300, 20000, 40015
MINE: Final = "mine@1@0@x"
OTHER, OTHER_SECRET = "other", "the-secret-of-other"
ORDERS, BILLING = resource("orders"), resource("billing")


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    """Two users with every right there is, short of being an admin."""
    made = AccessRig()
    made.engine.users.create(OTHER, OTHER_SECRET, admin=False, now_ms=made.now_ms)
    for user in ("shop", OTHER):
        for kind in Kind:
            rights = frozenset(right for right in Right if may_be(kind, right))
            made.engine.users.grant(user, kind, "*", rights, made.now_ms)
    yield made
    made.close()


def may_be(kind: Kind, right: Right) -> bool:
    return right is not (Right.REDRIVE if kind is Kind.TOPIC else Right.PUB)


def mine(rig: AccessRig) -> FakeCall:
    return rig.by(client_id=MINE)


def others(rig: AccessRig) -> FakeCall:
    """The other user, under the client id of the first."""
    return rig.by(OTHER, OTHER_SECRET, client_id=MINE)


def code_of(rig: AccessRig, name: str, request: Any, call: FakeCall) -> int:
    response = getattr(service_pb2, f"{name}Response")
    return rig.code_of(f"{MESSAGING}/{name}", request, response, call)


def receive(auto_renew: bool = True) -> service_pb2.ReceiveMessageRequest:
    return service_pb2.ReceiveMessageRequest(
        group=BILLING,
        message_queue=v2.MessageQueue(topic=ORDERS),
        batch_size=1,
        auto_renew=auto_renew,
        invisible_duration=duration(30_000),
        long_polling_timeout=duration(0),
    )


def sync(*names: str, action: Any = v2.COMPLETE_ADD) -> service_pb2.SyncLiteSubscriptionRequest:
    return service_pb2.SyncLiteSubscriptionRequest(
        topic=ORDERS, group=BILLING, action=action, lite_topic_set=names
    )


def messaging_calls() -> list[tuple[str, type[Any]]]:
    service = FILES[0].DESCRIPTOR.services_by_name["MessagingService"]
    return [
        (rpc.name, getattr(service_pb2, rpc.input_type.name))
        for rpc in service.methods
        if rpc.name != "Telemetry"
    ]


@pytest.mark.parametrize(("name", "request_class"), messaging_calls())
def test_no_call_is_made_under_the_client_id_of_another(
    rig: AccessRig, name: str, request_class: type[Any]
) -> None:
    assert f"{MESSAGING}/{name}" in RULES
    stream = TelemetryStream(rig, mine(rig))
    assert stream.settings(consumer_of("orders", "billing")) == OK
    before = rig.engine.store.log.end
    assert code_of(rig, name, request_class(), others(rig)) == FORBIDDEN
    assert rig.engine.store.log.end == before
    kind = rig.methods[f"{MESSAGING}/{name}"].kind
    assert kind in (MethodKind.UNARY, MethodKind.SERVER_STREAM)
    stream.close()


def test_nor_are_settings_sent_under_it(rig: AccessRig) -> None:
    stream = TelemetryStream(rig, mine(rig))
    assert stream.settings(producer_of("orders")) == OK
    theirs = TelemetryStream(rig, others(rig))
    assert theirs.settings(producer_of("orders")) == FORBIDDEN
    theirs.close()
    stream.close()


class TestWithoutASession:
    """What holds something under an id is its user's too."""

    def test_lite_subscriptions(self, rig: AccessRig) -> None:
        rig.engine.topics.create("orders", TopicType.LITE, 1, rig.now_ms)
        assert code_of(rig, "SyncLiteSubscription", sync("a", "b"), mine(rig)) == OK
        for request in (
            sync("c"),
            sync(action=v2.COMPLETE_REMOVE),
            sync("a", action=v2.PARTIAL_REMOVE),
        ):
            assert code_of(rig, "SyncLiteSubscription", request, others(rig)) == FORBIDDEN
        assert code_of(rig, "ReceiveMessage", receive(), others(rig)) == FORBIDDEN
        leaving = service_pb2.NotifyClientTerminationRequest(group=BILLING)
        assert code_of(rig, "NotifyClientTermination", leaving, others(rig)) == FORBIDDEN
        assert code_of(rig, "NotifyClientTermination", leaving, mine(rig)) == OK
        assert code_of(rig, "SyncLiteSubscription", sync("c"), others(rig)) == OK

    def test_leases_that_are_renewed(self, rig: AccessRig) -> None:
        rig.send_message("m-1")
        assert code_of(rig, "ReceiveMessage", receive(), mine(rig)) == OK
        leaving = service_pb2.NotifyClientTerminationRequest(group=BILLING)
        living = service_pb2.HeartbeatRequest(group=BILLING)
        before = rig.engine.store.log.end
        assert code_of(rig, "NotifyClientTermination", leaving, others(rig)) == FORBIDDEN
        assert code_of(rig, "Heartbeat", living, others(rig)) == FORBIDDEN
        stream = TelemetryStream(rig, others(rig))
        assert stream.settings(consumer_of("orders", "billing")) == FORBIDDEN
        stream.close()
        assert rig.engine.store.log.end == before
        assert code_of(rig, "NotifyClientTermination", leaving, mine(rig)) == OK
        assert rig.engine.store.log.end > before

    def test_who_is_silent_for_too_long_is_nobodys(self, rig: AccessRig) -> None:
        code_of(rig, "ReceiveMessage", receive(), mine(rig))
        assert code_of(rig, "ReceiveMessage", receive(), others(rig)) == FORBIDDEN
        rig.now_ms += rig.config.server.client_silent_ms_max + 1
        rig.services.on_second()
        assert code_of(rig, "ReceiveMessage", receive(), others(rig)) == 40401

    def test_leaving_a_group_in_which_nothing_is_held_does_nothing(self, rig: AccessRig) -> None:
        """After a restart nobody knows whose ids are: a right to the group at least is needed."""
        rig.send_message("m-1")
        assert code_of(rig, "ReceiveMessage", receive(), mine(rig)) == OK
        rig.services.sessions.remove(MINE)  # as after a restart
        before = rig.engine.store.log.end
        for group in ({}, {"group": resource("elsewhere")}):
            leaving = service_pb2.NotifyClientTerminationRequest(**group)
            assert code_of(rig, "NotifyClientTermination", leaving, others(rig)) == UNRECOGNIZED
        stream = TelemetryStream(rig, others(rig))  # a session of another group ends that one's
        assert stream.settings(consumer_of("orders", "elsewhere")) == OK
        leaving = service_pb2.NotifyClientTerminationRequest(group=resource("elsewhere"))
        assert code_of(rig, "NotifyClientTermination", leaving, others(rig)) == OK
        stream.close()
        assert rig.engine.store.log.end == before


def test_a_heartbeat_needs_the_right_to_the_clients_own_group(rig: AccessRig) -> None:
    """It names a group, or none; the client lives on for the one of its settings."""
    stream = TelemetryStream(rig, mine(rig))
    assert stream.settings(consumer_of("orders", "billing")) == OK
    rig.engine.users.revoke("shop", Kind.GROUP, "*", frozenset({Right.SUB}), rig.now_ms)
    rig.grant(Kind.GROUP, "mine", Right.SUB)
    for request in (
        service_pb2.HeartbeatRequest(),
        service_pb2.HeartbeatRequest(group=resource("mine")),
        service_pb2.HeartbeatRequest(group=BILLING),
    ):
        assert code_of(rig, "Heartbeat", request, mine(rig)) == FORBIDDEN
    stream.close()
