"""Admin RPCs about connected clients, and those that ask them something."""

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from latermq_broker.services.call.handler import Unary
from latermq_broker.services.clients import replies
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import (
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageResult,
)
from latermq_proto.latermq.v1.broker_pb2 import ReconnectClientsRequest, ReconnectClientsResponse
from support.admin_rig import AdminRig, resource
from support.fake_call import FakeCall

Code = v2.Code
BILLING, ORDERS = resource("billing"), resource("orders")


@pytest.fixture
def rig() -> Iterator[AdminRig]:
    rig = AdminRig()
    rig.make_group()
    rig.send_message("m", body=b"hello")
    yield rig
    rig.close()


def test_subscriptions_of_clients(rig: AdminRig) -> None:
    async def run() -> None:
        one = await rig.consumer("c-1", expression="a || b")
        two = await rig.consumer("c-2", expression="a || b")
        producer = await rig.producer("p-1")
        (listed,) = (await rig.asked("ListSubscription", topic=ORDERS)).subscription_info
        assert (listed.group.name, listed.topic.name, listed.online) == ("billing", "orders", True)
        assert (listed.expression.expression, listed.subscription_consistency) == ("a || b", True)
        assert listed.message_model == 1
        three = await rig.consumer("c-3", expression="*")
        (listed,) = (await rig.asked("ListSubscription", group=BILLING)).subscription_info
        assert not listed.subscription_consistency
        each = (await rig.asked("DescribeSubscription", group=BILLING)).client_subscription_info
        assert [one.client_info.client_id for one in each] == ["c-1", "c-2", "c-3"]
        assert [one.subscription_info.expression.expression for one in each] == (
            ["a || b", "a || b", "*"]
        )
        assert not any(one.subscription_info.subscription_consistency for one in each)
        found = (await rig.asked("ListConsumerConnection", group=BILLING)).client_info
        assert [one.client_id for one in found] == ["c-1", "c-2", "c-3"]
        assert (found[0].language, found[0].hostname, found[0].egress_ip) == (
            "JAVA", "host-1", "192.0.2.1",
        )  # fmt: skip
        other = await rig.asked("ListConsumerConnection", group=BILLING, topic=resource("x"))
        assert (other.status.code, list(other.client_info)) == (Code.OK, [])
        running = await rig.asked("GetConsumerRunningInfo", client_id="c-1", group=BILLING)
        info = running.consumer_running_info
        assert info.subscriptions["orders"].expression == "a || b"
        assert running.status.message
        refused = await rig.asked("GetConsumerRunningInfo", client_id="c-1", group=resource("x"))
        assert refused.status.code == Code.NOT_FOUND
        stats = await rig.asked("GetProxyRuntimeStats")
        assert (stats.connections, stats.producers, stats.consumers) == (4, 1, 3)
        for client in (one, two, three, producer):
            await client.close()

    rig.loop.run_until_complete(run())


def test_a_subscription_is_forgotten_until_it_is_used_again(rig: AdminRig) -> None:
    (delivered,) = rig.receive()
    request = {"group": BILLING, "topic": ORDERS}
    (listed,) = rig.admin("ListSubscription", **request).subscription_info
    assert (listed.online, listed.subscription_consistency) == (False, True)
    assert listed.last_update_timestamp.ToMilliseconds() == rig.now_ms
    assert rig.admin("DeleteSubscription", **request).status.code == Code.OK
    assert not rig.admin("ListSubscription", **request).subscription_info
    assert rig.admin("DeleteSubscription", **request).status.code == Code.NOT_FOUND
    assert rig.ack(delivered) == [True]  # nothing of its progress is gone
    rig.advance(1)
    rig.send_message("n")
    assert len(rig.receive()) == 1
    assert len(rig.admin("ListSubscription", **request).subscription_info) == 1

    async def connected() -> None:
        client = await rig.consumer("c-1")
        refused = await rig.asked("DeleteSubscription", **request)
        assert refused.status.code == Code.BAD_REQUEST
        await client.close()

    rig.loop.run_until_complete(connected())


def test_a_client_tells_its_stack(rig: AdminRig) -> None:
    async def run() -> None:
        client = await rig.consumer("c-1")
        other = await rig.consumer("c-2")
        asking = asyncio.ensure_future(rig.asked("PrintThreadStackTrace", client_id="c-1"))
        command = (await client.command()).print_thread_stack_trace_command
        answer = TelemetryCommand(
            status=v2.Status(code=v2.OK),
            thread_stack_trace=ThreadStackTrace(nonce=command.nonce, thread_stack_trace="main …"),
        )
        other.say(answer)  # it was not asked
        stray = TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce="nobody's"))
        client.say(stray)
        await asyncio.sleep(0.01)
        assert not asking.done()
        client.say(answer)
        client.say(answer)
        told = await asking
        assert (told.status.code, told.thread_stack_trace) == (Code.OK, "main …")
        asking = asyncio.ensure_future(rig.asked("PrintThreadStackTrace", client_id="c-1"))
        nonce = (await client.command()).print_thread_stack_trace_command.nonce
        client.say(
            TelemetryCommand(
                status=v2.Status(code=v2.UNSUPPORTED, message="not here"),
                thread_stack_trace=ThreadStackTrace(nonce=nonce),
            )
        )
        told = await asking
        assert (told.status.code, told.HasField("thread_stack_trace")) == (Code.UNSUPPORTED, False)
        for one in (client, other):
            await one.close()

    rig.loop.run_until_complete(run())


def test_a_client_that_says_nothing_is_waited_for_a_while(
    rig: AdminRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "ANSWER_MS_MAX", 10)

    async def run() -> None:
        client = await rig.consumer("c-1")
        told = await rig.asked("PrintThreadStackTrace", client_id="c-1")
        assert told.status.code == Code.INTERNAL_SERVER_ERROR
        assert "did not answer within 10 ms" in told.status.message
        monkeypatch.setattr(replies, "QUESTIONS_MAX", 0)
        told = await rig.asked("PrintThreadStackTrace", client_id="c-1")
        assert told.status.code == Code.TOO_MANY_REQUESTS
        await client.close()
        told = await rig.asked("PrintThreadStackTrace", client_id="c-1")
        assert told.status.code == Code.TOO_MANY_REQUESTS
        monkeypatch.setattr(replies, "QUESTIONS_MAX", 9)
        told = await rig.asked("PrintThreadStackTrace", client_id="c-1")
        assert told.status.code == Code.NOT_FOUND  # it heartbeats, and has no stream

    rig.loop.run_until_complete(run())


@pytest.mark.parametrize("code", [v2.OK, v2.FAILED_TO_CONSUME_MESSAGE, v2.NOT_IMPLEMENTED])
def test_a_client_consumes_a_message_to_verify_it(rig: AdminRig, code: v2.Code) -> None:
    async def run() -> None:
        client = await rig.consumer("c-1")
        asking = asyncio.ensure_future(
            rig.asked("VerifyMessage", group=BILLING, client_id="c-1", topic=ORDERS, message_id="m")
        )
        command = (await client.command()).verify_message_command
        assert (command.message.body, command.message.topic.name) == (b"hello", "orders")
        assert command.message.system_properties.message_id == "m"
        client.say(
            TelemetryCommand(
                status=v2.Status(code=code),
                verify_message_result=VerifyMessageResult(nonce=command.nonce),
            )
        )
        assert (await asking).status.code == code
        asking = asyncio.ensure_future(
            rig.asked("VerifyMessage", group=BILLING, client_id="c-1", topic=ORDERS, message_id="m")
        )
        back = await client.command()
        back.status.code = code
        client.say(back)  # as Node.js does
        assert (await asking).status.code == code
        missing = await rig.asked(
            "VerifyMessage", group=BILLING, client_id="c-1", topic=ORDERS, message_id="x"
        )
        assert missing.status.code == Code.MESSAGE_NOT_FOUND
        await client.close()

    rig.loop.run_until_complete(run())


def test_clients_are_asked_to_reconnect(rig: AdminRig) -> None:
    def ask(request: ReconnectClientsRequest) -> tuple[int, int, int]:
        handler = cast(Unary, rig.methods["/latermq.v1.Brokers/ReconnectClients"].handler)
        data = handler(request.SerializeToString(), FakeCall(client_id=""))
        answer = ReconnectClientsResponse.FromString(cast(bytes, data))
        return (answer.status.code, answer.told, answer.out_of_reach)

    async def run() -> None:
        one = await rig.consumer("c-1")
        two = await rig.producer("p-1")
        gone = await rig.consumer("c-2")
        await gone.close()  # it may heartbeat yet
        assert ask(ReconnectClientsRequest(client_id="c-1")) == (Code.OK, 1, 0)
        first = (await one.command()).reconnect_endpoints_command.nonce
        assert ask(ReconnectClientsRequest(client_id="c-2")) == (Code.NOT_FOUND, 0, 0)
        assert ask(ReconnectClientsRequest(all=True)) == (Code.OK, 2, 1)
        others = [(await each.command()).reconnect_endpoints_command.nonce for each in (one, two)]
        assert all({first, *others})
        assert len({first, *others}) == 3
        for client in (one, two):
            await client.close()

    rig.loop.run_until_complete(run())
