"""`latermq receive`, `ack` and `nack`: a consumer by hand."""

from collections.abc import Iterator
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, duration, example, text
from latermq_cli.connection.shards import Shards
from latermq_cli.messages.send import require_topic
from latermq_cli.terminal.bodies import body_lines, decoded
from latermq_cli.terminal.console import counted, page_width, print_json, styled
from latermq_cli.terminal.facts import fact, room
from latermq_cli.terminal.failures import OK, CommandError, error_of
from latermq_cli.terminal.jsonable import bytes_entry
from latermq_cli.terminal.table import plain
from latermq_cli.terminal.times import format_ago, format_clock, format_instant
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import failure_pb2, topic_pb2

RECEIVE_BATCH_MAX: Final = 32
MESSAGE_NOT_FOUND: Final = 40401
TOPIC_NOT_FOUND: Final = 40402
WAIT_AT_ONE_MS: Final = 1_000  # of several shards
WAIT_MS_MAX: Final = 20_000
_ANSWER_SLACK_S: Final = 10.0
_NO_REASON: Final = "given back by hand"
# What a broker keeps unless told otherwise; much more does not fit into the headers of a call.
_CLASS_BYTES_MAX: Final = 256
_TEXT_BYTES_MAX: Final = 2_048
_CAME_AGAIN: Final = "; stopped, for they came again: --invisible is too short"

Message = definition_pb2.Message


@click.command(
    epilog=example(
        "latermq receive orders --group billing",
        "latermq receive orders --group billing --max 100 --ack",
        "latermq receive %DLQ%billing --group looking",
    )
)
@click.argument("topic")
@click.option("--group", required=True, help="The consumer group to receive as.")
@click.option(
    "--max", "count_max", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Receive at most N messages.",
)  # fmt: skip
@click.option(
    "--invisible", type=duration, default="30s", show_default=True,
    help="How long the messages are yours before they are delivered again.",
)  # fmt: skip
@click.option(
    "--wait", type=duration, default="5s", show_default=True,
    help="How long to wait for a first message; at most 20s at a time.",
)  # fmt: skip
@click.option("--tag", default="*", show_default=True, help='Only these tags, e.g. "a || b".')
@click.option(
    "--sql", default="", help="Only what this lets through, e.g. \"price > 5 AND TAGS = 'paid'\"."
)
@click.option("--ack", is_flag=True, help="Acknowledge each message once it is printed.")
@broker_options
def receive(
    topic: str,
    group: str,
    count_max: int,
    invisible: int,
    wait: int,
    tag: str,
    sql: str,
    ack: bool,
    endpoint: str,
    as_json: bool,
) -> None:
    """Receive messages from TOPIC and print them.

    Without --ack they come again when the invisible time is over, unless you `latermq ack` them
    with the handle shown. What --tag or --sql passes over is done for the group: it never comes.
    """
    if sql and tag != "*":
        raise click.UsageError("say either --tag or --sql")
    wanted = definition_pb2.FilterExpression(
        type=definition_pb2.SQL if sql else definition_pb2.TAG, expression=sql or tag
    )
    request = _receive_request(topic, group, invisible, wanted)
    seen: set[tuple[str, int, int, str]] = set()
    again = False
    with Connection(endpoint) as broker:
        missing = _require_topic(broker, topic)
        try:
            while len(seen) < count_max:
                request.batch_size = min(RECEIVE_BATCH_MAX, count_max - len(seen))
                # Only the first call waits; the later ones take what is there.
                wait_ms = min(wait, WAIT_MS_MAX) if not seen else 0
                messages = _receive_of_any(broker.shards, request, wait_ms)
                new = [message for message in messages if _place(message) not in seen]
                seen.update(map(_place, new))
                for message in new:
                    _show(message, invisible, acked=ack, as_json=as_json)
                if ack and messages:
                    _ack(broker.shards, topic, group, [_handle(message) for message in messages])
                if again := len(new) < len(messages):
                    break  # what was shown goes on coming again, until it dies
                if not messages:
                    break
        except CommandError as error:
            done = [f"{counted(len(seen), 'message')} received"] if seen else []
            if not done:
                raise
            raise error.after(", ".join(done)) from None
    if missing and not seen:
        click.echo(f"topic {plain(topic)} is not there: the first message makes it", err=True)
    if not as_json:
        rest = " and acknowledged" if ack and seen else ""
        rest += _CAME_AGAIN if again else ""
        click.echo(f"{counted(len(seen), 'message')} received{rest}", err=True)


def _require_topic(broker: Connection, topic: str) -> bool:
    """Tell whether it is not there yet. Raises CommandError."""
    missing = False
    try:
        broker.call(broker.topics.GetTopic, topic_pb2.GetTopicRequest(name=topic))
    except CommandError as error:  # who may receive need not be one who may look
        missing = error.code == TOPIC_NOT_FOUND
    require_topic(broker, topic)
    return missing and not topic.startswith("%")


def _place(message: Message) -> tuple[str, int, int, str]:
    """Return what no other message of the topic has."""
    system = message.system_properties
    return system.lite_topic, system.queue_id, system.queue_offset, system.message_id


def _handle(message: Message) -> str:
    return message.system_properties.receipt_handle


@click.command(epilog=example("latermq ack orders HANDLE --group billing"))
@click.argument("topic")
@click.argument("handles", nargs=-1, required=True, metavar="HANDLE...")
@click.option("--group", required=True, help="The group that received it.")
@broker_options
def ack(topic: str, handles: tuple[str, ...], group: str, endpoint: str, as_json: bool) -> None:
    """Acknowledge messages that `latermq receive` printed: they are done."""
    with Connection(endpoint) as broker:
        _ack(broker.shards, topic, group, list(handles))
    if as_json:
        print_json({"topic": topic, "group": group, "acknowledged": len(handles)})
    else:
        click.echo(f"{counted(len(handles), 'message')} acknowledged")


@click.command(
    epilog=example(
        "latermq nack orders HANDLE --group billing",
        'latermq nack orders HANDLE --group billing --delay 1m --error "TimeoutError: no answer"',
    )
)
@click.argument("topic")
@click.argument("handle")
@click.option("--group", required=True, help="The group that received it.")
@click.option(
    "--delay", type=duration, default="0", help="Deliver it again after this long [at once]."
)
@click.option(
    "--error",
    default="",
    type=text,
    metavar="CLASS: TEXT",
    help="Why it failed, for the record; 256 bytes of CLASS and 2 KiB of TEXT are kept.",
)
@broker_options
def nack(
    topic: str, handle: str, group: str, delay: int, error: str, endpoint: str, as_json: bool
) -> None:
    """Say that a message could not be handled: it comes again, or dies after its last attempt.

    A backoff of the group wins over --delay.
    """
    request = service_pb2.ChangeInvisibleDurationRequest(
        group=definition_pb2.Resource(name=group),
        topic=definition_pb2.Resource(name=topic),
    )
    request.invisible_duration.FromMilliseconds(delay)
    class_name, colon, reason = (error or _NO_REASON).partition(":")
    failure = failure_pb2.Failure(
        class_name=_head(class_name, _CLASS_BYTES_MAX) if colon else "",
        text=_head(reason if colon else class_name, _TEXT_BYTES_MAX),
    )
    # Without a failure the call would only move the lease: the attempt would not be over.
    metadata = (("latermq-failure-bin", failure.SerializeToString()),)
    with Connection(endpoint) as broker:
        request.receipt_handle, held_by = broker.shards.whose(handle)
        held_by.call(broker.messaging.ChangeInvisibleDuration, request, metadata=metadata)
    if as_json:
        print_json({"topic": topic, "group": group, "delay_ms": delay})
    else:
        click.echo("given back")


def _head(given: str, bytes_max: int) -> str:
    return given.strip().encode()[:bytes_max].decode("utf-8", "ignore")


def _receive_request(
    topic: str,
    group: str,
    invisible_ms: int,
    wanted: definition_pb2.FilterExpression,
) -> service_pb2.ReceiveMessageRequest:
    request = service_pb2.ReceiveMessageRequest(
        group=definition_pb2.Resource(name=group),
        message_queue=definition_pb2.MessageQueue(topic=definition_pb2.Resource(name=topic)),
        filter_expression=wanted,
        auto_renew=False,
    )
    request.invisible_duration.FromMilliseconds(invisible_ms)
    return request


def _receive_batch(
    broker: Connection, request: service_pb2.ReceiveMessageRequest, wait_ms: int
) -> list[Message]:
    """Receive what one call gives; empty when nothing came in time."""
    request.long_polling_timeout.FromMilliseconds(wait_ms)
    messages: list[Message] = []
    timeout_s = wait_ms / 1000 + _ANSWER_SLACK_S
    for element in broker.stream(broker.messaging.ReceiveMessage, request, timeout_s=timeout_s):
        kind = element.WhichOneof("content")
        if kind == "message":
            messages.append(element.message)
        elif kind == "status" and element.status.code not in (OK, MESSAGE_NOT_FOUND):
            raise error_of(element.status.code, element.status.message)
    return messages


def _receive_of_any(
    shards: Shards, request: service_pb2.ReceiveMessageRequest, wait_ms: int
) -> list[Message]:
    """Receive of the first shard that has some: ask each for what is there, then wait a second at
    each in turns. Handles name their shard."""
    if not shards.several:
        return _receive_batch(shards.asked, request, wait_ms)
    until_ms = clock.now_ms() + wait_ms
    part_ms = 0
    while True:
        for number, broker in shards.each(lambda broker: broker):
            messages = _receive_batch(broker, request, part_ms)
            for message in messages:
                message.system_properties.receipt_handle += f"@{number}"
            left_ms = until_ms - clock.now_ms()
            if messages:
                return messages
            if part_ms and left_ms <= 0:
                return []
            part_ms = part_ms and min(left_ms, WAIT_AT_ONE_MS)
        part_ms = min(until_ms - clock.now_ms(), WAIT_AT_ONE_MS)
        if part_ms <= 0:
            return []


def _ack(shards: Shards, topic: str, group: str, handles: list[str]) -> None:
    held: dict[Connection, list[str]] = {}
    for handle in handles:
        own, broker = shards.whose(handle)
        held.setdefault(broker, []).append(own)
    for broker, own_handles in held.items():
        request = service_pb2.AckMessageRequest(
            group=definition_pb2.Resource(name=group),
            topic=definition_pb2.Resource(name=topic),
            entries=[service_pb2.AckMessageEntry(receipt_handle=own) for own in own_handles],
        )
        response = broker.call(broker.messaging.AckMessage, request)
        for entry in response.entries:
            if entry.status.code != OK:
                raise error_of(entry.status.code, entry.status.message)


def _show(message: Message, invisible_ms: int, *, acked: bool, as_json: bool) -> None:
    if as_json:
        print_json(_jsonable(message, acked))
        return
    for line in _lines(message, clock.now_ms(), invisible_ms, acked=acked):
        click.echo(line)
    click.echo()


def _encoding(message: Message) -> str:
    zipped = message.system_properties.body_encoding == definition_pb2.GZIP
    return "gzip" if zipped else "identity"


def _jsonable(message: Message, acked: bool) -> dict[str, Any]:
    system = message.system_properties
    dead = system.dead_letter_queue if system.HasField("dead_letter_queue") else None
    body, damage = decoded(message.body, _encoding(message))
    return {
        "message_id": system.message_id,
        "topic": message.topic.name,
        "queue_id": system.queue_id,
        "queue_offset": system.queue_offset,
        "attempt": system.delivery_attempt,
        "tag": system.tag,
        "keys": list(system.keys),
        "message_group": system.message_group,
        "priority": system.priority if system.HasField("priority") else None,
        "lite_topic": system.lite_topic,
        "properties": dict(message.user_properties),
        **bytes_entry("body", body),
        "body_damage": damage,
        "born_at_ms": system.born_timestamp.ToMilliseconds(),
        "born_host": system.born_host,
        "stored_at_ms": system.store_timestamp.ToMilliseconds(),
        "deliver_at_ms": system.delivery_timestamp.ToMilliseconds(),
        "dead_letter_topic": dead.topic if dead else "",
        "dead_letter_message_id": dead.message_id if dead else "",
        "receipt_handle": system.receipt_handle,
        "acknowledged": acked,
    }


def _lines(message: Message, now_ms: int, invisible_ms: int, *, acked: bool) -> Iterator[str]:
    system, width = message.system_properties, page_width()
    place = f"{plain(message.topic.name)}, queue {system.queue_id}, offset {system.queue_offset}"
    title = styled(f"message {plain(system.message_id)}", bold=True)
    yield f"{title}, attempt {system.delivery_attempt}"
    born_ms = system.born_timestamp.ToMilliseconds()
    sent = f"{format_instant(born_ms)} ({format_ago(born_ms, now_ms)})"
    yield from fact("from", [place], width)
    yield from fact("sent", [f"{sent} by {system.born_host}" if system.born_host else sent], width)
    if system.HasField("dead_letter_queue"):
        yield from fact("died in", [f"topic {system.dead_letter_queue.topic}"], width)
    if system.HasField("delivery_timestamp"):
        due_ms = system.delivery_timestamp.ToMilliseconds()
        yield from fact("wanted at", [format_instant(due_ms, millis=True)], width)
    yield from fact("tag", [system.tag] if system.tag else [], width)
    yield from fact("keys", [", ".join(system.keys)] if system.keys else [], width)
    priority = [str(system.priority)] if system.HasField("priority") else []
    yield from fact("priority", priority, width)
    yield from fact("lite topic", [system.lite_topic] if system.lite_topic else [], width)
    named = sorted(message.user_properties.items())
    yield from fact("properties", [f"{name} = {value}" for name, value in named], width)
    lines = body_lines(message.body, _encoding(message), room(width))
    yield from fact("body", lines or ["(empty)"], width)
    if not acked:
        until = format_clock(now_ms + invisible_ms)
        yield from fact("handle", [system.receipt_handle, f"yours until {until}"], width)
