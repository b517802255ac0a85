"""Run as a script: the official RocketMQ client, unmodified, driven by lines.

A command is one JSON object on standard input, `{"id": 7, "do": "send", …}`; it is answered by one
line on standard output, `{"id": 7, "ok": …}` or `{"id": 7, "error": class, "code": …, "message":
…}`. Commands run side by side. What a push consumer is handed is told unasked, as
`{"event": "consumed", …}`. Nothing of LaterMQ is imported here.
"""

import asyncio
import base64
import functools
import hashlib
import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import grpc
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.exception import ClientException

COMMANDS_AT_ONCE: Final = 32
SHOWN_BODY_BYTES_MAX: Final = 1 << 20
SEND_TIMEOUT_S: Final = 50.0  # less than who asked waits
TLS: Final = os.environ.get("LATERMQ_CLIENT_TLS") == "1"

_output = threading.Lock()
_serial = itertools.count(1)


def say(line: dict[str, Any]) -> None:
    with _output:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def like_the_main_thread() -> None:
    """Give this thread an event loop, as Python gives the main thread one.

    When the broker's first answer is quicker than the client's next line, the client opens its
    telemetry stream in the thread that called it, and fails where that has no loop.
    """
    asyncio.set_event_loop(asyncio.new_event_loop())


def configuration(endpoint: str) -> Any:
    key, secret = os.environ.get("TEST_ACCESS_KEY", ""), os.environ.get("TEST_SECRET_KEY", "")
    namespace = os.environ.get("TEST_NAMESPACE", "")
    return ClientConfiguration(endpoint, Credentials(key, secret), namespace)


def subscriptions(tags_by_topic: dict[str, str]) -> dict[str, Any]:
    return {topic: filter_of(wanted) for topic, wanted in tags_by_topic.items()}


def filter_of(wanted: str) -> Any:
    """Tags, or after `sql:` an expression."""
    if wanted.startswith("sql:"):
        return FilterExpression(wanted.removeprefix("sql:"), FilterType.SQL)
    return FilterExpression(wanted)


def told(message: Any, ref: str) -> dict[str, Any]:
    """What this client shows its user of a received message."""
    body: bytes = message.body
    return {
        "ref": ref,
        "topic": message.topic,
        "body": base64.b64encode(body[:SHOWN_BODY_BYTES_MAX]).decode(),
        "body_bytes": len(body),
        "body_md5": hashlib.md5(body).hexdigest(),
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": message.properties,
        "attempt": message.delivery_attempt,
        "handle": message.receipt_handle,
        "born_host": message.born_host,
        "born_ms": message.born_timestamp,
        "delivery_ms": message.delivery_timestamp,
        "type": message.message_type,
        "priority": message.priority,
        "lite_topic": message.lite_topic,
        "corrupted": message.corrupted,
        "at_ms": now_ms(),
    }


class Listener(MessageListener):  # type: ignore[misc]
    """Fails a body as often as `failures` says (-1: always), by raising every other time."""

    def __init__(self, consumer: str, failures: dict[str, int]) -> None:
        self._consumer = consumer
        self._failures = failures
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def consume(self, message: Any) -> Any:
        text = message.body[:200].decode(errors="replace")
        with self._lock:
            self._seen[text] += 1
            seen = self._seen[text]
        fails = self._failures.get(text, 0)
        failing = fails < 0 or seen <= fails
        line = {"event": "consumed", "consumer": self._consumer, "failing": failing}
        say({**line, "message": told(message, "")})
        if failing and seen % 2:
            raise RuntimeError(f"no luck with {text!r}")
        return ConsumeResult.FAILURE if failing else ConsumeResult.SUCCESS


def took(consumer: str, message: Any) -> bool:
    """Tell it in few words, for many; whether this attempt fails: a "nack…" at first."""
    text, attempt = message.body.decode(), message.delivery_attempt
    line = {"event": "took", "consumer": consumer, "text": text, "attempt": attempt}
    say({**line, "at_ms": now_ms()})
    return bool(attempt == 1 and text.startswith("nack"))


class BriefListener(MessageListener):  # type: ignore[misc]
    def __init__(self, consumer: str) -> None:
        self._consumer = consumer

    def consume(self, message: Any) -> Any:
        failing = took(self._consumer, message)
        return ConsumeResult.FAILURE if failing else ConsumeResult.SUCCESS


RESOLUTIONS: Final = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


class Checker(TransactionChecker):  # type: ignore[misc]
    """Says of a body's transaction what `verdicts` says."""

    def __init__(self, producer: str, verdicts: dict[str, str]) -> None:
        self._producer = producer
        self._verdicts = verdicts

    def check(self, message: Any) -> Any:
        text = message.body.decode(errors="replace")
        say({"event": "checked", "producer": self._producer, "topic": message.topic, "text": text})
        return RESOLUTIONS[self._verdicts.get(text, "unknown")]


def answer(serial: int, result: "Future[Any]") -> None:
    error = result.exception()
    if error is None:
        say({"id": serial, "ok": result.result()})
        return
    code = getattr(error, "code", None)  # the broker's; elsewhere it is no number
    line = {"error": type(error).__name__, "message": str(error)}
    say({"id": serial, "code": code if isinstance(code, int) else None, **line})


def outgoing(
    *,
    topic: str,
    text: str = "",
    body_bytes: int = 0,
    tag: str = "",
    keys: list[str] | None = None,
    properties: dict[str, str] | None = None,
    deliver_at_s: int = 0,
    deliver_at_ms: int = 0,
    message_group: str = "",
    priority: int | None = None,
    lite_topic: str = "",
) -> Any:
    message = Message()
    message.topic = topic
    message.body = text.encode() if text else os.urandom(body_bytes)
    if tag:
        message.tag = tag
    for key in keys or []:
        message.keys = key  # the client's setter adds
    for key, value in (properties or {}).items():
        message.add_property(key, value)
    deliver_at_s = deliver_at_s or -(-deliver_at_ms // 1_000)  # this client knows no other
    if deliver_at_s:
        message.delivery_timestamp = deliver_at_s
    if message_group:
        message.message_group = message_group
    if priority is not None:
        message.priority = priority
    if lite_topic:
        message.lite_topic = lite_topic
    return message


class Clients:
    """The commands: every public method is one."""

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}
        self._messages: dict[str, Any] = {}
        self._transactions: dict[str, Any] = {}

    def producer(
        self,
        name: str,
        endpoint: str,
        topics: list[str],
        verdicts: dict[str, str] | None = None,
    ) -> None:
        checker = Checker(name, verdicts or {})
        client = Producer(configuration(endpoint), topics, checker, tls_enable=TLS)
        client.startup()
        self._clients[name] = client

    def simple(
        self, name: str, endpoint: str, group: str, topics: dict[str, str], wait_s: int
    ) -> None:
        client = SimpleConsumer(
            configuration(endpoint),
            group,
            subscriptions(topics),
            await_duration=wait_s,
            tls_enable=TLS,
        )
        client.startup()
        self._clients[name] = client

    def push(
        self,
        name: str,
        endpoint: str,
        group: str,
        topics: dict[str, str],
        failures: dict[str, int],
        brief: bool = False,
    ) -> None:
        listener = BriefListener(name) if brief else Listener(name, failures)
        wanted = subscriptions(topics)
        client = PushConsumer(configuration(endpoint), group, listener, wanted, tls_enable=TLS)
        client.startup()
        self._clients[name] = client

    def lite_simple(self, name: str, endpoint: str, group: str, topic: str, wait_s: int) -> None:
        client = LiteSimpleConsumer(
            topic, configuration(endpoint), group, await_duration=wait_s, tls_enable=TLS
        )
        client.startup()
        self._clients[name] = client

    def lite_push(
        self, name: str, endpoint: str, group: str, topic: str, failures: dict[str, int]
    ) -> None:
        listener = Listener(name, failures)
        client = LitePushConsumer(configuration(endpoint), group, topic, listener, tls_enable=TLS)
        client.startup()
        self._clients[name] = client

    def subscribe(self, name: str, topic: str, tags: str) -> None:
        """Change a consumer's filter of a topic."""
        self._clients[name].subscribe(topic, filter_of(tags))

    def subscribe_lite(self, name: str, lite_topic: str) -> None:
        self._clients[name].subscribe_lite(lite_topic)

    def unsubscribe_lite(self, name: str, lite_topic: str) -> None:
        self._clients[name].unsubscribe_lite(lite_topic)

    def shutdown(self, name: str) -> None:
        self._clients.pop(name).shutdown()

    def send(self, name: str, way: str = "sync", **fields: Any) -> dict[str, Any]:
        """`way`: sync or async (the future's result is awaited)."""
        message = outgoing(**fields)
        client = self._clients[name]
        sent_ms = now_ms()
        if way == "async":
            receipt = client.send_async(message).result(timeout=30)
        else:
            receipt = client.send(message)
        return {
            "message_id": receipt.message_id,
            "offset": receipt.offset,
            "recall_handle": receipt.recall_handle,
            "sent_ms": sent_ms,
            "answered_ms": now_ms(),
        }

    def send_many(
        self, names: list[str], topic: str, prefix: str, count: int, pause_ms: int = 0
    ) -> list[str]:
        """`count` bodies `prefix`0… by four threads for each producer, which rest between sends.

        Each body is tried until it is sent; a broker takes seconds to start on a busy machine.
        """
        until_s = time.monotonic() + SEND_TIMEOUT_S

        def send(index: int) -> str:
            client = self._clients[names[index % len(names)]]
            while time.monotonic() < until_s:
                time.sleep(pause_ms / 1000)
                try:
                    message = outgoing(topic=topic, text=f"{prefix}{index}")
                    return str(client.send(message).message_id)
                except (ClientException, grpc.RpcError) as error:
                    say({"event": "send failed", "message": str(error)})
                    time.sleep(0.1)
            raise RuntimeError(f"{prefix}{index} was never sent")

        with ThreadPoolExecutor(4 * len(names)) as threads:
            return list(threads.map(send, range(count)))

    def begin(self, name: str, **fields: Any) -> dict[str, Any]:
        """A half message; `ref` names its transaction."""
        client = self._clients[name]
        transaction = client.begin_transaction()
        receipt = client.send(outgoing(**fields), transaction)
        ref = str(next(_serial))
        self._transactions[ref] = transaction
        return {"ref": ref, "message_id": receipt.message_id}

    def end(self, name: str, ref: str, resolution: str) -> None:
        transaction = self._transactions[ref]
        if resolution == "commit":
            transaction.commit()
        else:
            transaction.rollback()

    def recall(self, name: str, topic: str, recall_handle: str) -> str:
        return str(self._clients[name].recall_message(topic, recall_handle))

    def receive(self, name: str, count_max: int = 32, invisible_s: int = 30) -> list[Any]:
        messages = self._clients[name].receive(count_max, invisible_s)
        at_ms = now_ms()
        lines = []
        for message in messages:
            ref = str(next(_serial))
            self._messages[ref] = message
            lines.append({**told(message, ref), "at_ms": at_ms})
        return lines

    def drain(self, name: str, invisible_s: int = 30) -> None:
        """Receive, tell and acknowledge until the process ends; a "nack…" not at first."""
        threading.Thread(target=self._drain, args=(name, invisible_s), daemon=True).start()

    def _drain(self, name: str, invisible_s: int) -> None:
        like_the_main_thread()
        client = self._clients[name]
        while True:
            try:
                for message in client.receive(32, invisible_s):
                    if took(name, message):
                        client.change_invisible_duration(message, 1)
                    else:
                        client.ack(message)
            except (ClientException, grpc.RpcError) as error:
                say({"event": "receive failed", "message": str(error)})
                time.sleep(0.2)

    def ack(self, name: str, ref: str, handle: str = "") -> None:
        """`handle`: one that this message had before."""
        message = self._messages[ref]
        message.receipt_handle = handle or message.receipt_handle
        self._clients[name].ack(message)

    def change_invisible(self, name: str, ref: str, seconds: int) -> str:
        message = self._messages[ref]
        self._clients[name].change_invisible_duration(message, seconds)
        return str(message.receipt_handle)


def main() -> None:
    clients = Clients()
    threads = ThreadPoolExecutor(COMMANDS_AT_ONCE, initializer=like_the_main_thread)
    say({"event": "started"})
    for line in sys.stdin:
        command = json.loads(line)
        serial, do = command.pop("id"), command.pop("do")
        running = threads.submit(getattr(clients, do), **command)
        running.add_done_callback(functools.partial(answer, serial))
    os._exit(0)  # a consumer's threads may still wait in a long poll


if __name__ == "__main__":
    main()
