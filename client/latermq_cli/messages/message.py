"""`latermq message`: find messages by id, key or time, and tell where one is in its life."""

from collections.abc import Collection
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example, instant, limit_option
from latermq_cli.messages.message_story import Telling, place, tell
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, page_width, print_json, print_table
from latermq_cli.terminal.failures import RefusedError
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_due, format_instant
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import message_pb2

_COLUMNS: Final = (
    Column("STORED"),
    Column("TOPIC", flex=True),
    Column("QUEUE", right=True),
    Column("OFFSET", right=True),
    Column("TAG", flex=True, optional=True),
    Column("KEYS", flex=True, optional=True),
    Column("BYTES", right=True, optional=True),
    Column("MESSAGE ID"),
)
_DAMAGED_NAMED: Final = 8


@click.group(cls=CommandGroup)
def message() -> None:
    """Find messages that the broker has, and see what became of them."""


@message.command(
    epilog=example(
        "latermq message find orders --key order-4711",
        "latermq message find --id 01AABBCCDDEEFF00112233445566778899",
        "latermq message find orders --from -10m --to now",
    )
)
@click.argument("topic", required=False, default="")
@click.option("--key", default="", help="Sent with this key.")
@click.option("--id", "message_id", default="", help="With this message id, in any topic.")
@click.option("--from", "begin_ms", type=instant, metavar="TIME", help="Stored then or later.")
@click.option("--to", "end_ms", type=instant, metavar="TIME", help="Stored then or before.")
@limit_option
@broker_options
def find(
    topic: str,
    key: str,
    message_id: str,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
    endpoint: str,
    as_json: bool,
) -> None:
    """Find messages of TOPIC by key or time, or of all topics by message id.

    By time the oldest first, otherwise the newest. What waits for its delivery time is found by id
    and by key; `latermq pending list` has it by time. QUEUE is "later" while it waits, and "never"
    if it was cancelled, recalled or rolled back.
    """
    timed = begin_ms is not None or end_ms is not None
    if not (key or message_id or timed):
        raise click.UsageError("say --key, --id, or --from and --to")
    if message_id and (key or timed):
        raise click.UsageError("--id goes without --key, --from and --to")
    if not (topic or message_id):
        raise click.UsageError("say in which TOPIC")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise click.UsageError(f"--from {format_due(begin_ms)} is after --to {format_due(end_ms)}")
    request = message_pb2.FindMessagesRequest(
        topic=topic, message_id=message_id, key=key, begin_ms=begin_ms or 0, end_ms=end_ms or 0
    )
    if timed and not key and not request.begin_ms and not request.end_ms:
        request.begin_ms = 1
    damaged: set[int] = set()
    hits: list[Any] = []
    with Connection(endpoint) as broker:
        shards = broker.shards
        find_messages = broker.messages.FindMessages
        for _, answer in shards.answers(find_messages, request, "messages", limit):
            damaged.update(answer.damaged_positions)
            hits.extend(answer.messages)
    if shards.several:
        forwards = timed and not key
        hits.sort(key=lambda hit: hit.stored_at_ms, reverse=not forwards)
    more = bool(request.page_token) or len(hits) > limit
    del hits[limit:]
    if as_json:
        messages = [shards.jsonable(each) for each in hits]
        print_json({"messages": messages, "more": more, "damaged_positions": sorted(damaged)})
        shards.finish()
        return
    if hits:
        print_table(shards.columns(_COLUMNS), shards.rows([_row(each) for each in hits], hits))
    elif not damaged:
        click.echo("no such message")
    if more:
        click.echo(f"… more than {limit:,}; raise --limit")
    if damaged:
        asked = "with this id" if message_id else "with this key" if key else "of this time"
        click.echo(_unreadable(damaged, asked))
    shards.finish()


def _unreadable(positions: Collection[int], asked: str) -> str:
    """Say what the broker has and cannot show."""
    named = ", ".join(map(str, sorted(positions)[:_DAMAGED_NAMED]))
    if len(positions) > _DAMAGED_NAMED:
        named += ", …"
    return (
        f"{counted(len(positions), 'message')} {asked} could not be read "
        f"(damaged at position {named})"
    )


def _row(hit: message_pb2.FoundMessage) -> tuple[str, ...]:
    placed = hit.queue_id >= 0
    return (
        format_instant(hit.stored_at_ms),
        hit.topic,
        str(hit.queue_id) if placed else _nowhere(hit),
        str(hit.queue_offset) if placed else "-",
        hit.tag,
        ", ".join(hit.keys),
        f"{hit.body_size:,}",
        hit.message_id,
    )


def _nowhere(hit: message_pb2.FoundMessage) -> str:
    """Say why it stands in no queue; `latermq message show` takes a longer look."""
    if hit.cancelled:
        return "never"
    return "later" if hit.waits_until_ms else "-"


@message.command(
    epilog=example(
        "latermq message show 01AABBCCDDEEFF00112233445566778899",
        "latermq message show 01AABBCCDDEEFF00112233445566778899 --topic orders --body",
    )
)
@click.argument("message_id")
@click.option("--topic", default="", help="Only in this topic.")
@click.option("--body", is_flag=True, help="Show the whole body.")
@broker_options
def show(message_id: str, topic: str, body: bool, endpoint: str, as_json: bool) -> None:
    """Tell what a message is and where it is in its life, for each group.

    Its body is shown to who may see it.
    """
    request = message_pb2.DescribeMessageRequest(message_id=message_id, topic=topic, with_body=True)
    hidden = ""
    with Connection(endpoint) as broker:
        shards = broker.shards

        def described() -> list[tuple[int, Any]]:
            return shards.each(lambda each: each.call(each.messages.DescribeMessage, request))

        try:
            parts = described()
        except RefusedError as error:
            if body or error.code != definition_pb2.FORBIDDEN:
                raise
            request.with_body, hidden = False, error.message
            parts = described()
    damaged = [position for _, part in parts for position in part.damaged_positions]
    lives = [life for _, part in parts for life in part.lives]
    for shard, part in parts:
        shards.remember(shard, part.lives)
    if as_json:
        shown = {"lives": list(map(shards.jsonable, lives)), "damaged_positions": damaged}
        print_json({**shown, "body_hidden": hidden})
        shards.finish()
        return
    telling = Telling(
        width=page_width(), now_ms=clock.now_ms(), whole_body=body, body_hidden=hidden
    )
    for number, life in enumerate(lives):
        if number:
            click.echo()
        for line in tell(life, telling):
            click.echo(line)
        if shards.several:
            click.echo(f"it is in shard {shards.of(life)}")
    if len(lives) > 1:
        click.echo()
        others = ", ".join(plain(place(life)) for life in lives)
        click.echo(f"{len(lives)} messages have this id: {others}")
    if damaged:
        click.echo()
        click.echo(_unreadable(damaged, "with this id"))
    shards.finish()
