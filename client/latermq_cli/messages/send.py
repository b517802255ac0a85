"""`latermq send`: one message, or many alike, now or later."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from latermq.admin import message_ids
from latermq.message import DEDUP_PROPERTY
from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, duration, example, instant, pair, text
from latermq_cli.terminal.console import print_json
from latermq_cli.terminal.failures import OK, CommandError, RefusedError, error_of
from latermq_cli.terminal.table import plain
from latermq_cli.terminal.times import format_ago, format_due
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import message_pb2
from latermq_text.durations import format_duration

BODY_BYTES_MAX: Final = 128 << 20  # a broker says how many it really takes
BATCH_COUNT_MAX: Final = 100
BATCH_BYTES_MAX: Final = 2 << 20
COUNT_MAX: Final = 1_000_000
PRIORITY_MAX: Final = (1 << 31) - 1
DUPLICATE: Final = "DUPLICATE"  # as the message of an entry's status


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    message_id: str
    offset: int  # in its queue; 0 while delayed
    pending_id: str  # "" unless delayed
    duplicate: bool  # nothing was stored: it is another message that has the dedup id


@click.command(
    epilog=example(
        "latermq send orders 'hello'",
        "latermq send orders '{\"order\": 1}' --tag created --key order-1 --property tenant=north",
        "latermq send orders 'pay up' --delay 30m",
        "latermq send orders @order.json --at 2026-05-01T18:30:00",
        "latermq send alarms 'fire' --priority 9",
        "latermq send orders @order.json --dedup-id order-17",
        "date | latermq send orders -",
    )
)
@click.argument("topic")
@click.argument("body")
@click.option(
    "--tag", type=text, default="", help="What kind of message it is; consumers filter by it."
)
@click.option(
    "--key", "keys", type=text, multiple=True,
    help="What it is about, to find it by. Repeatable.",
)  # fmt: skip
@click.option("--property", "properties", type=pair, multiple=True, metavar="NAME=VALUE")
@click.option(
    "--message-group",
    type=text,
    default="",
    metavar="NAME",
    help="Deliver messages of the same NAME in their order, in FIFO groups.",
)
@click.option(
    "--priority", type=click.IntRange(0, PRIORITY_MAX), metavar="N",
    help="In a topic of type priority, deliver before those with a lower N.",
)  # fmt: skip
@click.option(
    "--lite-topic", type=text, default="", metavar="NAME",
    help="In a topic of type lite: its queue.",
)  # fmt: skip
@click.option(
    "--dedup-id", type=text, default="", metavar="ID",
    help="Store nothing if a message with this ID was sent to TOPIC not long ago (5 minutes).",
)  # fmt: skip
@click.option("--delay", type=duration, default=None, help="Deliver after this long.")
@click.option("--at", type=instant, default=None, metavar="TIME", help="Deliver then.")
@click.option(
    "--delay-level", type=click.IntRange(min=1), metavar="N",
    help="Deliver after level N of the broker's table (1 = 1s, 2 = 5s, … 18 = 2h); "
    "beyond its last level, after that.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=1, show_default=True)
@broker_options
def send(
    topic: str,
    body: str,
    message_group: str,
    delay: int | None,
    at: int | None,
    delay_level: int | None,
    count: int,
    endpoint: str,
    as_json: bool,
    **labels: Any,
) -> None:
    """Send BODY to TOPIC.

    BODY is the text itself, - for standard input, or @FILE for a file's content (@@ for a text that
    starts with @).
    """
    if sum(value is not None for value in (delay, at, delay_level)) > 1:
        raise click.UsageError("say one of --delay, --at and --delay-level")
    if message_group and labels["priority"] is not None:
        raise click.UsageError("say one of --message-group and --priority")
    names = [name for name, _ in labels["properties"]]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise click.UsageError(f"--property {twice} is given more than once")
    if count > 1 and labels["dedup_id"]:
        raise click.UsageError("say one of --count and --dedup-id")
    now_ms = clock.now_ms()
    due_ms = at if delay is None else now_ms + delay
    template = _template(topic, read_body(body), message_group, due_ms, now_ms, labels)
    level = (("latermq-delay-level", str(delay_level)),) if delay_level else ()
    with Connection(endpoint) as broker:
        require_topic(broker, topic)
        sent: list[Sent] = []
        try:
            for batch in _batches(template, count):
                _send_batch(broker, batch, level, sent)
        except CommandError as error:
            if not sent:
                raise
            explanation = f"{len(sent):,} of {count:,} sent, then: {error.message}"
            if as_json:
                _print_sent_json(topic, sent, due_ms, explanation)
            raise CommandError(explanation) from None
        if delay_level:
            due_ms = _due_ms(broker, topic, sent[0])
    took_ms = clock.now_ms() - now_ms
    if as_json:
        _print_sent_json(topic, sent, due_ms)
        return
    when = ""
    if due_ms is not None and due_ms > now_ms:
        when = f", due {format_due(due_ms)} ({format_ago(due_ms, now_ms)})"
    if delay_level:
        when += f", delayed by level {delay_level} or, if it has fewer, the broker's last"
    if sent[0].duplicate:
        first = plain(sent[0].message_id)
        click.echo(f"not stored: {plain(topic)} has {first} with this dedup id")
        return
    if count == 1:
        click.echo(f"sent {plain(sent[0].message_id)} to {plain(topic)}{when}")
        return
    took = format_duration(took_ms)
    click.echo(f"sent {count:,} messages to {plain(topic)} in {took}{when}")


def require_topic(broker: Connection, topic: str) -> None:
    """Ask for the route, as every client does first. Raises CommandError: the name is refused."""
    request = service_pb2.QueryRouteRequest(
        topic=definition_pb2.Resource(name=topic), endpoints=broker.access_point
    )
    broker.call(broker.messaging.QueryRoute, request)


def read_body(body: str) -> bytes:
    """Return the bytes of a BODY: text, - for standard input, @FILE. Raises RefusedError."""
    if body == "-":
        if sys.stdin is None:  # `<&-`
            raise RefusedError("standard input is closed: there is no body to read")
        return _bounded(sys.stdin.buffer, "standard input")
    if body.startswith("@@"):
        return body[1:].encode()
    if not body.startswith("@"):
        return body.encode("utf-8", "surrogateescape")
    try:
        with Path(body[1:]).open("rb") as file:
            return _bounded(file, body[1:])
    except OSError as error:
        raise RefusedError(f"{body[1:]}: {error.strerror or error}") from None


def _bounded(source: BinaryIO, name: str) -> bytes:
    """Read all of it, unless it has more than any broker takes. Raises RefusedError, OSError."""
    data = source.read(BODY_BYTES_MAX + 1)
    if len(data) > BODY_BYTES_MAX:
        raise RefusedError(f"{name}: more than {BODY_BYTES_MAX} bytes")
    return data


def _template(
    topic: str,
    body: bytes,
    message_group: str,
    due_ms: int | None,
    now_ms: int,
    labels: dict[str, Any],
) -> definition_pb2.Message:
    """Make the message but for its id."""
    message = definition_pb2.Message(
        topic=definition_pb2.Resource(name=topic), user_properties=dict(labels["properties"])
    )
    message.body = body
    system = message.system_properties
    system.tag = labels["tag"]
    system.keys.extend(labels["keys"])
    system.body_encoding = definition_pb2.IDENTITY
    system.message_type = definition_pb2.NORMAL
    system.born_timestamp.FromMilliseconds(now_ms)
    if message_group:
        system.message_group = message_group
        system.message_type = definition_pb2.FIFO
    if labels["priority"] is not None:
        system.priority = labels["priority"]
        system.message_type = definition_pb2.PRIORITY
    if labels["dedup_id"]:
        message.user_properties[DEDUP_PROPERTY] = labels["dedup_id"]
    if labels["lite_topic"]:
        system.lite_topic = labels["lite_topic"]
        system.message_type = definition_pb2.LITE
    if due_ms is not None:
        system.delivery_timestamp.FromMilliseconds(due_ms)
        system.message_type = definition_pb2.DELAY
    return message


def _batches(
    template: definition_pb2.Message, count: int
) -> Iterator[list[definition_pb2.Message]]:
    """Yield `count` messages with ids of their own, in calls of bounded size."""
    ids = message_ids()
    each_max = max(1, min(BATCH_COUNT_MAX, BATCH_BYTES_MAX // (template.ByteSize() + 64)))
    left = iter(range(count))
    while taken := sum(1 for _ in islice(left, each_max)):
        batch = []
        for _ in range(taken):
            message = definition_pb2.Message()
            message.CopyFrom(template)
            message.system_properties.message_id = ids.next()
            batch.append(message)
        yield batch


def _send_batch(
    broker: Connection,
    batch: list[definition_pb2.Message],
    metadata: tuple[tuple[str, str], ...],
    sent: list[Sent],
) -> None:
    """Send a batch; `sent` gets what was stored where some is refused, too. Raises CommandError."""
    request = service_pb2.SendMessageRequest(messages=batch)
    response = broker.call(broker.messaging.SendMessage, request, metadata=metadata)
    for entry in response.entries:
        if entry.status.code == OK:
            sent.append(
                Sent(
                    message_id=entry.message_id,
                    offset=entry.offset,
                    pending_id=entry.recall_handle,
                    duplicate=entry.status.message == DUPLICATE,
                )
            )
    for entry in response.entries:
        if entry.status.code != OK:
            raise error_of(entry.status.code, entry.status.message)


def _due_ms(broker: Connection, topic: str, sent: Sent) -> int | None:
    """Ask when a message delayed by a level is due; None: the broker does not say."""
    request = message_pb2.DescribeMessageRequest(message_id=sent.message_id, topic=topic)
    try:
        lives = broker.call(broker.messages.DescribeMessage, request).lives
    except CommandError:  # who may send need not be one who may look; or it is not there any more
        return None
    return int(lives[0].waits_until_ms) or None


def _print_sent_json(topic: str, sent: list[Sent], due_ms: int | None, error: str = "") -> None:
    messages = [
        {
            "message_id": each.message_id,
            "queue_offset": None if each.pending_id else each.offset,
            "pending_id": each.pending_id,
            "duplicate": each.duplicate,
        }
        for each in sent
    ]
    document = {"topic": topic, "count": len(sent), "due_at_ms": due_ms or 0, "error": error}
    print_json({**document, "messages": messages})
