"""`latermq topic`: create, alter, list, show, delete."""

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import click

from latermq_cli.catalog.live_consumers import live_consumers, say_who_waits
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import (
    broker_options,
    confirmed,
    duration,
    example,
    filter_options,
    limit_option,
    yes_option,
)
from latermq_cli.connection.shards import Shards
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, print_json, print_table, styled
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import pending_pb2, topic_pb2
from latermq_text.durations import format_duration

TYPES: Final = ("normal", "fifo", "delay", "transaction", "priority", "lite", "mixed")


def _age(word: str) -> Callable[[str], int]:
    """Make a `type=` for options: a duration, `default`, or `word` for none → milliseconds."""
    no_age = {"default": -1, word: 0}

    def read(given: str) -> int:
        age_ms = no_age[given] if given in no_age else duration(given)
        if not age_ms and given != word:
            raise ValueError(f"{given!r} is no age; say {word} for none")
        return age_ms

    return read


_time_options: Final = filter_options(
    click.option(
        "--retention", type=_age("forever"), metavar="DURATION",
        help="How long messages stay once every group has read them: 12h, 30d, forever, or "
        "default: as the broker's settings say.",
    ),
    click.option(
        "--unread-retention", type=_age("disk"), metavar="DURATION",
        help="How long what a group has not read stays: 7d, disk: until that is nearly full, or "
        "default.",
    ),
    click.option(
        "--dedup-window", type=_age("forever"), metavar="DURATION",
        help="How long a dedup id counts that is given from now on: 1h, or default.",
    ),
)  # fmt: skip


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, show, alter and delete topics."""


@topic.command(
    epilog=example(
        "latermq topic create orders",
        "latermq topic create payments --type delay --queues 8",
        "latermq topic create alarms --type priority",
        "latermq topic create chat --type lite       (many small ordered queues in one topic)",
    )
)
@click.argument("name")
@click.option(
    "--type", "kind", type=click.Choice(TYPES), default="mixed", show_default=True,
    help="What the topic accepts: messages of this type only; mixed: normal, fifo, delay and "
    "transaction messages side by side, none with a priority or a lite topic.",
)  # fmt: skip
@click.option(
    "--queues",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many queues [broker's default]; of type priority: how many priorities [10].",
)
@_time_options
@broker_options
def create(
    name: str,
    kind: str,
    queues: int | None,
    retention: int | None,
    unread_retention: int | None,
    dedup_window: int | None,
    endpoint: str,
    as_json: bool,
) -> None:
    """Create the topic NAME.

    Doing it twice is no error as long as type, queues, retention and dedup window are the same.
    """
    request = topic_pb2.CreateTopicRequest(
        name=name,
        type=kind.upper(),
        queue_count=queues or 0,
        retention_ms=retention,
        unread_retention_ms=unread_retention,
        dedup_window_ms=dedup_window,
    )
    with Connection(endpoint) as broker:
        made = broker.call(broker.topics.CreateTopic, request).topic
    if as_json:
        print_json(jsonable(made))
    else:
        click.echo(f"topic {plain(made.name)}: {_policy(made)}")


@topic.command(
    epilog=example(
        "latermq topic alter orders --queues 8", "latermq topic alter audit --retention 30d"
    )
)
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(TYPES), help="What the topic accepts from now.")
@click.option("--queues", type=click.IntRange(min=1), metavar="N", help="More queues; never fewer.")
@_time_options
@broker_options
def alter(
    name: str,
    kind: str | None,
    queues: int | None,
    retention: int | None,
    unread_retention: int | None,
    dedup_window: int | None,
    endpoint: str,
    as_json: bool,
) -> None:
    """Change the topic NAME: its type, its queues, how long messages stay and dedup ids count.

    The type is asked of new messages; what is there already is delivered as it was sent. To and
    from priority and lite there is no way: their queues are others.
    """
    if all(each is None for each in (kind, queues, retention, unread_retention, dedup_window)):
        raise click.UsageError(
            "say what to change: --type, --queues, --retention, --unread-retention, --dedup-window"
        )
    request = topic_pb2.AlterTopicRequest(
        name=name,
        type=(kind or "topic_type_unspecified").upper(),
        queue_count=queues or 0,
        retention_ms=retention,
        unread_retention_ms=unread_retention,
        dedup_window_ms=dedup_window,
    )
    with Connection(endpoint) as broker:
        before = broker.call(broker.topics.GetTopic, topic_pb2.GetTopicRequest(name=name)).topic
        altered = broker.call(broker.topics.AlterTopic, request).topic
        misfits = _misfits(broker, altered) if altered.type != before.type else ""
    if as_json:
        print_json(jsonable(altered))
    else:
        click.echo(f"topic {plain(altered.name)}: {_policy(altered)}")
    if misfits:
        new = f"only new messages must be of type {type_word(altered.type)}"
        click.echo(f"latermq: note: {misfits}, delivered as it was sent; {new}", err=True)


def _misfits(broker: Connection, altered: Any) -> str:
    """Say what the topic holds that is not of its type, or may not be; "": nothing."""
    kind = altered.type
    if kind == topic_pb2.MIXED:
        return ""
    request = pending_pb2.CountPendingRequest(filter=pending_pb2.PendingFilter(topic=altered.name))
    waits = {
        each.kind: each.count for each in broker.call(broker.pending.CountPending, request).counts
    }
    held = []
    if altered.message_count:
        held.append(f"{counted(altered.message_count, 'message')} in its queues")
    if kind != topic_pb2.DELAY and waits.get(pending_pb2.DELAYED):
        held.append(f"{waits[pending_pb2.DELAYED]:,} delayed")
    if kind != topic_pb2.TRANSACTION and waits.get(pending_pb2.HALF):
        held.append(counted(waits[pending_pb2.HALF], "open transaction"))
    return f"the topic keeps what it has ({', '.join(held)})" if held else ""


@topic.command("list", epilog=example("latermq topic list", "latermq topic list --internal"))
@click.option("--internal", is_flag=True, help="Show the %DLQ% topics of dead letters too.")
@limit_option
@watch_option
@broker_options
def list_(internal: bool, limit: int, endpoint: str, as_json: bool) -> None:
    """List the topics and what they hold."""
    request = topic_pb2.ListTopicsRequest(include_internal=internal)
    with Connection(endpoint) as broker:
        shards = broker.shards
        topics, more = shards.pages(
            broker.topics.ListTopics, request, "topics", limit, lambda each: each.name
        )
    if as_json:
        print_json({"topics": [shards.jsonable(each) for each in topics], "more": more})
        shards.finish()
        return
    if not topics:
        click.echo("no topics yet; `latermq topic create NAME` makes one, so does the first send")
        shards.finish()
        return
    columns = (
        Column("TOPIC", flex=True),
        Column("TYPE"),
        Column("QUEUES", right=True),
        Column("MESSAGES", right=True),
        Column("DELAYED", right=True),
        Column("CREATED"),
    )
    print_table(shards.columns(columns), shards.rows([_row(each) for each in topics], topics))
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")
    shards.finish()


@topic.command(epilog=example("latermq topic show orders"))
@click.argument("name")
@broker_options
def show(name: str, endpoint: str, as_json: bool) -> None:
    """Show the topic NAME: its queues, what is delayed for it, and who has read it."""
    with Connection(endpoint) as broker:
        shards = broker.shards
        settings = _of_all(shards, name)
    if as_json:
        queues = [shards.jsonable(queue) for queue in settings.queues]
        print_json({**jsonable(settings), "queues": queues})
        shards.finish()
        return
    groups = ", ".join(plain(group) for group in settings.consumer_groups) or "none yet"
    click.echo(styled(f"topic {plain(settings.name)}", bold=True))
    click.echo(f"  accepts   {_policy(settings)}")
    click.echo(f"  created   {format_instant(settings.created_at_ms)}")
    click.echo(
        f"  messages  {settings.message_count:,} in its queues, {settings.delayed_count:,} delayed"
    )
    click.echo(f"  read by   {groups}")
    for index, line in enumerate(_stays(settings)):
        click.echo(f"  {'' if index else 'kept':<8}  {line}")
    window = format_duration(settings.dedup_kept_ms)
    click.echo(f"  dedup     an id counts for {window}, {_whose(settings, 'dedup_window_ms')}")
    click.echo()
    columns = (
        Column("QUEUE", right=True),
        Column("OLDEST", right=True),
        Column("NEXT", right=True),
        Column("MESSAGES", right=True),
    )
    rows = [
        (
            str(queue.queue_id),
            f"{queue.earliest_offset:,}",
            f"{queue.next_offset:,}",
            f"{queue.next_offset - queue.earliest_offset:,}",
        )
        for queue in settings.queues
    ]
    print_table(shards.columns(columns), shards.rows(rows, settings.queues))
    shards.finish()


def _of_all(shards: Shards, name: str) -> Any:
    """Return what all shards have of a topic, as one."""
    request = topic_pb2.GetTopicRequest(name=name)
    parts = shards.each(lambda broker: broker.call(broker.topics.GetTopic, request).topic)
    (_, whole), *others = parts
    counts = [len(part.queues) for _, part in parts]
    groups = {group for _, part in parts for group in part.consumer_groups}
    for _, part in others:
        whole.message_count += part.message_count
        whole.delayed_count += part.delayed_count
        whole.queues.extend(part.queues)
    del whole.consumer_groups[:]
    whole.consumer_groups.extend(sorted(groups))
    queues = iter(whole.queues)
    for (number, _), count in zip(parts, counts, strict=True):
        shards.remember(number, islice(queues, count))
    return whole


@topic.command(epilog=example("latermq topic delete orders --yes"))
@click.argument("name")
@yes_option
@broker_options
def delete(name: str, yes: bool, endpoint: str, as_json: bool) -> None:
    """Delete the topic NAME: its messages, what is delayed for it, every group's progress on it.

    Asks first, unless --yes. Names the live consumers of NAME: they wait, and do not make it again.
    """
    with Connection(endpoint) as broker:
        consumers = live_consumers(broker, topic=name)
        say_who_waits(consumers, "until it is created, or sent to")
        if not yes:
            settings = _of_all(broker.shards, name)
            held = counted(settings.message_count + settings.delayed_count, "message")
            confirmed(f"Delete topic {plain(name)} with {held}?", yes=False)
        broker.call(broker.topics.DeleteTopic, topic_pb2.DeleteTopicRequest(name=name))
    if as_json:
        print_json({"name": name, "deleted": True, "live_consumers": consumers})
    else:
        click.echo(f"topic {plain(name)} deleted")


def type_word(kind: int) -> str:
    return str(topic_pb2.TopicType.Name(kind)).lower() if kind in _KNOWN_TYPES else str(kind)


_KNOWN_TYPES: Final = frozenset(topic_pb2.TopicType.values())


def _policy(settings: Any) -> str:
    policy = f"{type_word(settings.type)}, {counted(settings.queue_count, 'queue')}"
    if settings.type == topic_pb2.PRIORITY:
        return f"{policy}: priorities 0 to {settings.queue_count - 1}, higher ones first"
    return policy


def _stays(settings: Any) -> list[str]:
    """Say what goes when."""
    age_ms, unread_ms = settings.kept_ms, settings.unread_kept_ms
    whose = _whose(settings, "retention_ms", "unread_retention_ms")
    if not age_ms:
        return [f"for ever, {whose}"]
    unread = f"after {format_duration(unread_ms)}" if unread_ms else "when the disk is nearly full"
    lines = [
        f"{format_duration(age_ms)} once every group has read it; unread goes {unread}; {whose}"
    ]
    if settings.oldest_at_ms:
        stored_ms = settings.oldest_at_ms
        goes = format_instant(stored_ms + age_ms)
        lines.append(f"the oldest is of {format_instant(stored_ms)}; read, it goes from {goes} on")
    return lines


def _whose(settings: Any, *fields: str) -> str:
    own = any(settings.HasField(field) for field in fields)
    return "set for this topic" if own else "as the broker's settings say"


def _row(settings: Any) -> tuple[str, ...]:
    return (
        settings.name,
        type_word(settings.type),
        f"{settings.queue_count:,}",
        f"{settings.message_count:,}",
        f"{settings.delayed_count:,}",
        format_instant(settings.created_at_ms),
    )
