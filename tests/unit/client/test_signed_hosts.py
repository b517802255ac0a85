"""Where a signed call may go, and the warning that it may be overheard."""

import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

import latermq
from latermq import Tls, admin
from latermq._connection import signed_hosts as module
from latermq._connection.signed_hosts import SignedHosts, signed_hosts
from latermq._values.credentials import Credentials
from latermq._values.endpoints import Endpoints
from latermq.client import Client
from latermq.errors import UntrustedHostError
from latermq_proto.latermq.v1 import broker_pb2
from support.scripted_broker import ScriptedBroker

SHOP: Final = Credentials("shop", "the-secret-of-shop")
parse = Endpoints.parse


@pytest.fixture(autouse=True)
def nobody_was_warned() -> Iterator[None]:
    module._warn.cache_clear()
    yield
    module._warn.cache_clear()


@pytest.mark.parametrize(
    ("named", "other", "goes"),
    [
        ("10.0.0.1:8081", "10.0.0.1:8082", True),
        ("10.0.0.1:8081", "10.0.0.2:8081", False),
        ("10.0.0.1:8081;10.0.0.2:8081", "10.0.0.2:9000", True),
        ("10.0.0.1:8081", "10.0.0.1:8081;10.0.0.2:8081", False),
        ("broker:8081", "BROKER:8082", True),
        ("broker:8081", "broker.evil.example:8081", False),
        ("127.0.0.1:8081", "localhost:8082", True),
        ("localhost:8081", "[::1]:8082", True),
        ("localhost:8081", "10.0.0.1:8082", False),
        ("10.0.0.1:8081", "127.0.0.1:8081", False),
    ],
)
def test_a_signed_call_goes_to_hosts_that_the_user_named(
    named: str, other: str, goes: bool
) -> None:
    for tls, checked in ((False, False), (Tls(verify=False), False), (True, True), (Tls(), True)):
        hosts = signed_hosts((parse(named),), SHOP, tls)
        assert hosts is not None
        if goes or checked:
            hosts.check(parse(other))
        else:
            with pytest.raises(UntrustedHostError, match="another host"):
                hosts.check(parse(other))
    assert signed_hosts((parse(named),), None, False) is None


@pytest.mark.parametrize("consumes", [False, True])
async def test_nothing_signed_goes_where_a_route_leads(consumes: bool) -> None:
    """The route of the topic has a queue on a host of somebody else's."""
    broker = ScriptedBroker(second=parse("192.0.2.66:8081"))
    named = parse("127.0.0.1:8081")
    client = Client(
        named, credentials=SHOP, transport=broker.connect, hosts=SignedHosts((named,), False)
    )
    async with client as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        work = consumer.receive() if consumes else mq.send("orders", b"body")
        with pytest.raises(UntrustedHostError, match=r"192\.0\.2\.66"):
            await work
        with pytest.raises(UntrustedHostError):
            await mq._admin_at(parse("192.0.2.66:8081")).call(
                admin.AsyncAdmin.brokers.GetBroker, broker_pb2.GetBrokerRequest()
            )
    assert {call.endpoint for call in broker.calls} == {"127.0.0.1:8081"}
    assert not broker.requests("SendMessage")


async def test_nor_where_a_cluster_leads() -> None:
    """As the command line, the console and Spark find the shards: by DescribeCluster."""
    led = admin.connect_async(
        "192.0.2.66:8081", access_key="shop", secret="s", named_by=("127.0.0.1:8081",)
    )
    with pytest.raises(UntrustedHostError):
        await led.call(led.brokers.GetBroker, broker_pb2.GetBrokerRequest())
    stream = led.stream(led.queues.ReadQueue, broker_pb2.GetBrokerRequest())
    with pytest.raises(UntrustedHostError):
        await anext(stream)
    await led.close()


async def test_it_is_warned_once_of_what_can_be_overheard(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned() -> list[str]:
        told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        caplog.clear()
        return told

    keys: dict[str, Any] = {"access_key": "shop", "secret": "the-secret-of-shop"}
    for endpoint in ("127.0.0.1:8081", "localhost:8081", "[::1]:8081"):
        latermq.connect(endpoint, **keys)
    latermq.connect("broker:8081")  # not signed
    latermq.connect("broker:8081", tls=Tls(verify=False), **keys)
    assert warned() == []
    for _ in range(2):
        latermq.connect("broker:8081", **keys)
        await admin.connect_async("broker:8081", **keys).close()
    (line,) = warned()
    assert "calls to broker:8081 are signed by shop and not encrypted" in line
    assert "the-secret" not in line
    monkeypatch.setenv("LATERMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("LATERMQ_SECRET_KEY", "env-secret")
    latermq.connect("10.0.0.1:8081;10.0.0.2:8081")
    assert len(warned()) == 1
