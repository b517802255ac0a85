"""What makes no sense is refused by the argument's name, its value and what would make sense."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import latermq
import latermq.sync
from latermq import Batching, Tls
from latermq._values.arguments import wrong
from latermq.errors import IllegalFilterError, IllegalGroupError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[..., latermq.Client]


def test_a_long_value_is_shortened() -> None:
    assert len(str(wrong("body", "bytes", "x" * 10_000))) < 100


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"endpoint": 5}, "endpoint must be a str or None, not 5 (int)"),
        ({"namespace": None}, "namespace must be a str, not None (NoneType)"),
        ({"request_timeout": 3}, "request_timeout must be a timedelta, such as"),
        ({"tls": 5}, "tls must be True, False, a Tls or None, not 5 (int)"),
        ({"tls": "ca.pem"}, "tls must be True, False, a Tls or None, not 'ca.pem' (str)"),
        ({"transport": 1}, "transport must be a str or None, not 1 (int)"),
        ({"batching": True}, "batching must be a Batching or None, not True (bool)"),
        ({"access_key": 1, "secret": "s"}, "access_key and secret must be str or None"),
    ],
)
def test_connect(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError) as refused:
        latermq.connect(**arguments)
    assert text in str(refused.value)


def test_a_secret_is_not_shown() -> None:
    with pytest.raises(TypeError) as refused:
        latermq.connect(access_key="shop", secret=b"hidden")  # type: ignore[arg-type]
    assert "hidden" not in str(refused.value)


@virtually
async def test_names_and_numbers(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        cases: list[tuple[Callable[[], Any], str]] = [
            (lambda: mq.send(5, b"x"), "topic must be a str, not 5 (int)"),  # type: ignore[arg-type]
            (lambda: mq.send("", b"x"), "topic must not be empty"),
            (lambda: mq.send("t", b"x", delay_level="2"), "delay_level must be an int, not '2'"),  # type: ignore[arg-type]
            (lambda: mq.send_batch("t", [b"x"]), "each of messages must be a Message, not b'x'"),  # type: ignore[list-item]
            (lambda: mq.recall("t", 5), "recall_handle must be a str, not 5"),  # type: ignore[arg-type]
            (lambda: mq.check_transactions("t", 5), "checker must be a function, not 5"),  # type: ignore[arg-type]
        ]
        for call, text in cases:
            with pytest.raises((TypeError, ValueError)) as refused:
                await call()
            assert text in str(refused.value)
        wrong_consumers: list[tuple[dict[str, Any], str]] = [
            ({"topics": 5, "group": "g"}, "topics must be a str, or a mapping of names to filters"),
            ({"topics": {"t": 5}, "group": "g"}, "topics['t'] must be a str, not 5 (int)"),
            ({"topics": "t", "group": 5}, "group must be a str, not 5 (int)"),
            ({"topics": "t", "group": ""}, "group must not be empty"),
            ({"topics": "t", "group": "g", "tags": 5}, "tags must be a str, not 5 (int)"),
        ]
        for arguments, text in wrong_consumers:
            for make in (mq.simple_consumer, mq.push_consumer):
                with pytest.raises((TypeError, ValueError)) as refused:
                    make(**arguments)
                assert text in str(refused.value)
        with pytest.raises(TypeError, match=r"concurrency must be an int, not 1\.5 \(float\)"):
            mq.push_consumer("t", group="g", concurrency=1.5)  # type: ignore[arg-type]
    assert not broker.named("SendMessage")


@virtually
async def test_what_is_received_and_settled(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq, mq.simple_consumer("orders", group="billing") as consumer:
        broker.deliver(b"one")
        for arguments, text in (
            ({"max_count": "2"}, "max_count must be an int, not '2'"),
            ({"max_count": 0}, "max_count must be at least 1, not 0"),
            ({"max_count": 2**70}, f"max_count must be at most 2147483647, not {2**70}"),
            ({"invisible": 5}, "invisible must be a timedelta, such as timedelta(seconds=5), not"),
            ({"wait": 5}, "wait must be a timedelta"),
            ({"wait": timedelta(-1)}, "wait must not be negative"),
        ):
            with pytest.raises((TypeError, ValueError)) as refused:
                await consumer.receive(**arguments)
            assert text in str(refused.value)
        (delivery,) = await consumer.receive(max_count=1)
        settles: list[tuple[Callable[[Any], Any], str]] = [
            (lambda d: d.extend(5), "invisible must be a timedelta"),
            (lambda d: d.retry_in(5), "after must be a timedelta"),
            (lambda d: d.nack("why"), "error must be an exception or None, not 'why' (str)"),
            (lambda d: d.dead_letter(5), "reason must be a str, not 5 (int)"),
            (lambda d: consumer.nack(d, after=5), "after must be a timedelta"),  # type: ignore[arg-type]
        ]
        for settle, text in settles:
            with pytest.raises(TypeError) as refused_type:
                await settle(delivery)
            assert text in str(refused_type.value)
        assert not delivery.settled


@virtually
async def test_refused_settings_have_the_error_of_their_code(
    broker: ScriptedBroker, connect: Connect
) -> None:
    for code, error in (
        (v2.ILLEGAL_FILTER_EXPRESSION, IllegalFilterError),
        (v2.ILLEGAL_CONSUMER_GROUP, IllegalGroupError),
    ):
        broker.refuse("Telemetry", v2.Status(code=code, message="no"))
        async with connect() as mq:
            with pytest.raises(error):
                await mq.simple_consumer("orders", group="b").receive()


def test_batching() -> None:
    with pytest.raises(TypeError, match="linger must be a timedelta"):
        Batching(linger=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count_max must be at least 1, not 0"):
        Batching(count_max=0)


def test_files_of_tls(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/nope"):
        latermq.connect(tls=Tls(ca="/nope"))
    text = tmp_path / "notes.txt"
    text.write_text("no certificate")
    with pytest.raises(ValueError, match=rf"^ca {text}: cannot be used"):
        latermq.connect(tls=Tls(ca=text))
    with pytest.raises(ValueError, match=rf"certificate and key {text} and {text}: cannot be used"):
        latermq.connect(tls=Tls(certificate=text, key=text))
    with pytest.raises(ValueError, match="ca must not be empty"):
        Tls(ca="")
    with pytest.raises(TypeError, match=r"ca must be a path, bytes or None, not 5 \(int\)"):
        Tls(ca=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="verify must be a bool, not 'no'"):
        Tls(verify="no")  # type: ignore[arg-type]


HALF = "a\ud800"  # what surrogateescape and json make of broken input


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"tag": HALF}, "tag"),
        ({"keys": ["ok", HALF]}, "each of keys"),
        ({"properties": {HALF: "x"}}, "each key of properties"),
        ({"properties": {"é": HALF}}, "properties['é']"),
        ({"message_group": HALF}, "message_group"),
        ({"lite_topic": HALF}, "lite_topic"),
    ],
)
def test_text_that_has_no_bytes_is_named(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"{name} must be text that UTF-8 can hold")
    ) as e:
        latermq.Message(b"x", **fields)
    assert type(e.value) is ValueError
    assert str(e.value).endswith(r"and has '\ud800': 'a\ud800' (str)")


@virtually
async def test_names_that_have_no_bytes_are_named(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("topic", lambda: mq.send(HALF, b"x")),
            ("tag", lambda: mq.send("t", b"x", tag=HALF)),
            ("topic", lambda: mq.send_batch(HALF, [latermq.Message(b"x")])),
            ("recall_handle", lambda: mq.recall("t", HALF)),
        ]
        for name, call in calls:
            with pytest.raises(ValueError, match=f"^{name} must be text"):
                await call()
        consumers: list[tuple[str, dict[str, Any]]] = [
            ("topics", {"topics": HALF, "group": "g"}),
            ("each key of topics", {"topics": {HALF: "*"}, "group": "g"}),
            ("group", {"topics": "t", "group": HALF}),
            ("tags", {"topics": "t", "group": "g", "tags": HALF}),
        ]
        for name, arguments in consumers:
            for make in (mq.simple_consumer, mq.push_consumer):
                with pytest.raises(ValueError, match=f"^{name} must be text"):
                    make(**arguments)
    assert not broker.named("SendMessage")
    with pytest.raises(ValueError, match=r"^namespace must be text"):
        latermq.connect(namespace=HALF)


@pytest.mark.parametrize("endpoint", ["", "  "])
@pytest.mark.parametrize("connect", [latermq.connect, latermq.sync.connect, latermq.App])
def test_an_empty_endpoint_is_refused(connect: Callable[[str], object], endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint must not be empty"):
        connect(endpoint)
