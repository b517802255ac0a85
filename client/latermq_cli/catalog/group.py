"""`latermq group`: create, alter, list, show, delete, reset."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from latermq.admin import backoff_message, read_backoff
from latermq.backoff import FIFO_RETRY, Backoff
from latermq_cli import clock
from latermq_cli.catalog.group_order import (
    BY_NAME,
    FIRST_MAX,
    ORDERS,
    first_groups,
    in_order,
)
from latermq_cli.catalog.live_consumers import live_consumers, say_who_waits
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import (
    broker_options,
    confirmed,
    example,
    instant,
    limit_option,
    yes_option,
)
from latermq_cli.connection.shards import Shards
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, print_json, print_table, styled
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_ago, format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import group_pb2
from latermq_text.attempts import UNLIMITED, UNLIMITED_WORD, allowed
from latermq_text.durations import format_duration
from latermq_text.whole import whole_group

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DEFAULT_BACKOFF: Final = "default"
_WEIGHT_MAX: Final = 100
_ON_DEAD: Final = {
    None: group_pb2.ON_DEAD_UNSPECIFIED,
    "skip": group_pb2.SKIP,
    "park": group_pb2.PARK,
}
LAG_COLUMNS: Final = (
    Column("READY", right=True),
    Column("BEHIND", right=True),
    Column("HELD", right=True),
    Column("BACKOFF", right=True),
    Column("IN", right=True),
    Column("OUT", right=True),
)
_BACKOFF_HELP: Final = (
    'How long a failed message waits: a ladder "1s 5s 10s", "exponential FIRST LONGEST FACTOR" or '
    '"fixed 10s"; "jitter 20%" may follow.'
)


def backoff_policy(text: str) -> group_pb2.Backoff:
    """Read a backoff; a `type=` for options."""
    try:
        return backoff_message(Backoff(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def attempts(text: str) -> int:
    """Read a number of attempts, or `unlimited`; a `type=` for options."""
    if text == UNLIMITED_WORD:
        return UNLIMITED
    if not text.isdecimal() or not 0 < int(text) < UNLIMITED:
        raise click.BadParameter(f"{text!r} is not a number of attempts from 1 on, or unlimited")
    return int(text)


def reset_target(text: str) -> int:
    """Read `earliest` as 0, else an instant; a `type=` for options."""
    if text == "earliest":
        return 0
    try:
        return instant(text)
    except click.BadParameter as error:
        explanation = error.message.replace("say now", "say earliest, now")
        raise click.BadParameter(explanation) from None


def _on_dead_option(skip: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--on-dead",
        type=click.Choice(["skip", "park"]),
        help=f"What a message group does when one of it dies, in a FIFO group. {skip}; "
        "park: stand still until the letter is redriven or dropped.",
    )


_WEIGHT_HELP: Final = "Share of each turn of the broker beside other groups [a new group has 1]."
_weight_option = click.option(
    "--weight", type=click.IntRange(1, _WEIGHT_MAX), metavar="N", help=_WEIGHT_HELP
)


@click.group(cls=CommandGroup)
def group() -> None:
    """Create, list, show, alter, reset and delete consumer groups."""


@group.command(
    epilog=example(
        "latermq group create billing",
        'latermq group create billing --max-attempts 3 --backoff "1s 5s"',
        'latermq group create mail --backoff "exponential 5s 2h 2 jitter 20%"',
        "latermq group create ledger --fifo --on-dead park",
        "latermq group create agents --lite-topics-of chat",
    )
)
@click.argument("name")
@click.option("--fifo", is_flag=True, help="Deliver each message group in order.")
@click.option(
    "--lite-topics-of", default="", metavar="TOPIC",
    help="Read lite topics of TOPIC, which its clients choose; each in order.",
)  # fmt: skip
@click.option("--exclusive", is_flag=True, help="A lite topic goes to its last subscriber alone.")
@_on_dead_option("skip: go on with the next (default)")
@click.option(
    "--max-attempts", type=attempts, metavar="N",
    help="Deliveries before a message is a dead letter, the first included, or unlimited [broker's "
    "default: 17; with --fifo: unlimited, unless it parks].",
)  # fmt: skip
@click.option(
    "--backoff", metavar="POLICY",
    help=f'{_BACKOFF_HELP} "default": the broker\'s own ladder [with --fifo: fixed 3s].',
)  # fmt: skip
@_weight_option
@broker_options
def create(
    name: str,
    fifo: bool,
    lite_topics_of: str,
    exclusive: bool,
    on_dead: str | None,
    max_attempts: int | None,
    backoff: str | None,
    weight: int | None,
    endpoint: str,
    as_json: bool,
) -> None:
    """Create the consumer group NAME.

    Doing it twice is no error as long as the policy is the same.
    """
    if fifo and not lite_topics_of:
        backoff = backoff or str(FIFO_RETRY)
        if on_dead != "park":  # which waits for dead letters
            max_attempts = max_attempts or UNLIMITED
    if exclusive and not lite_topics_of:
        raise click.UsageError("--exclusive needs --lite-topics-of")
    if on_dead == "park" and not (fifo or lite_topics_of):
        raise click.UsageError("--on-dead park needs --fifo: there is no order to keep")
    wanted = group_pb2.Group(
        name=name,
        fifo=fifo or bool(lite_topics_of),
        lite_topics_of=lite_topics_of,
        lite_exclusive=exclusive,
        max_attempts=max_attempts or 0,
        backoff=None if backoff in (None, _DEFAULT_BACKOFF) else backoff_policy(backoff),
        on_dead=_ON_DEAD[on_dead],
        weight=weight or 0,
    )
    request = group_pb2.CreateGroupRequest(group=wanted)
    with Connection(endpoint) as broker:
        made = broker.call(broker.groups.CreateGroup, request).group
    _print_policy(made, as_json)


@group.command(
    epilog=example(
        "latermq group alter billing --max-attempts 5",
        'latermq group alter billing --backoff "fixed 30s"',
        "latermq group alter billing --backoff default",
        "latermq group alter payments --weight 10",
    )
)
@click.argument("name")
@click.option(
    "--max-attempts", type=attempts, metavar="N",
    help="Deliveries before a message is a dead letter, the first included, or unlimited.",
)  # fmt: skip
@click.option(
    "--backoff", metavar="POLICY", help=f'{_BACKOFF_HELP} "default": the broker\'s own ladder.'
)
@_on_dead_option("skip: go on with the next")
@_weight_option
@broker_options
def alter(
    name: str,
    max_attempts: int | None,
    backoff: str | None,
    on_dead: str | None,
    weight: int | None,
    endpoint: str,
    as_json: bool,
) -> None:
    """Change what happens to the failed messages of the group NAME, and its weight."""
    if max_attempts is None and backoff is None and on_dead is None and weight is None:
        raise click.UsageError("say what to change: --max-attempts, --backoff, --on-dead, --weight")
    clear = backoff == _DEFAULT_BACKOFF
    policy = None if backoff is None or clear else backoff_policy(backoff)
    request = group_pb2.AlterGroupRequest(
        name=name,
        max_attempts=max_attempts or 0,
        backoff=policy,
        clear_backoff=clear,
        on_dead=_ON_DEAD[on_dead],
        weight=weight or 0,
    )
    with Connection(endpoint) as broker:
        altered = broker.call(broker.groups.AlterGroup, request).group
    _print_policy(altered, as_json)


@group.command("list", epilog=example("latermq group list", "latermq group list --by behind"))
@click.option(
    "--by", "order", type=click.Choice([BY_NAME, *ORDERS]), default=BY_NAME, show_default=True,
    help="Which come first: whose oldest message waits longest, which have most to receive, fail "
    "most, have most dead letters.",
)  # fmt: skip
@limit_option
@watch_option
@broker_options
def list_(order: str, limit: int, endpoint: str, as_json: bool) -> None:
    """List the consumer groups: how far each is behind, and its policy.

    READY is what a group may receive now, BEHIND how long the oldest of it has waited; IN and OUT
    are messages a second over the last minute, into its topics and acknowledged by it.
    """
    with Connection(endpoint) as broker:
        shards = broker.shards
        groups, more = _listed(broker, order, limit)
    if as_json:
        print_json({"groups": [shards.jsonable(each) for each in groups], "more": more})
        shards.finish()
        return
    if not groups:
        click.echo("no groups yet; `latermq group create NAME` makes one, so does the first use")
        shards.finish()
        return
    now_ms = clock.now_ms()
    columns = (
        Column("GROUP", flex=True),
        *LAG_COLUMNS,
        Column("DEAD", right=True),
        Column("ORDER", optional=True),
        Column("ATTEMPTS", right=True, optional=True),
        Column("POLICY", flex=True, optional=True),
        Column("CREATED", optional=True),
    )
    rows = [_row(each, now_ms) for each in groups]
    print_table(shards.columns(columns), shards.rows(rows, groups))
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")
    shards.finish()


def _listed(broker: Connection, order: str, limit: int) -> tuple[list[group_pb2.Group], bool]:
    """Return the first groups of each shard, and whether there are more."""
    shards = broker.shards
    if order == BY_NAME:
        return shards.pages(
            broker.groups.ListGroups, group_pb2.ListGroupsRequest(), "groups", limit,
            lambda each: each.name,
        )  # fmt: skip
    if limit > FIRST_MAX:
        raise click.UsageError(f"--by {order} lists at most {FIRST_MAX:,} groups")
    parts = shards.each(lambda broker: first_groups(broker, order, limit + 1))
    for number, groups in parts:
        shards.remember(number, groups)
    listed = in_order((group for _, groups in parts for group in groups), order)
    return listed[:limit], len(listed) > limit


@group.command(epilog=example("latermq group show billing"))
@click.argument("name")
@watch_option
@broker_options
def show(name: str, endpoint: str, as_json: bool) -> None:
    """Show the group NAME: its policy, and how far it is with each topic."""
    with Connection(endpoint) as broker:
        shards = broker.shards
        settings, topics = _of_all(shards, name)
    if as_json:
        shown = [shards.jsonable(each) for each in topics]
        print_json({**jsonable(settings), "topics": shown})
        shards.finish()
        return
    dead = "none"
    if settings.dead_letter_count:
        dead = f"{settings.dead_letter_count:,}; see `latermq dead list {plain(settings.name)}`"
    click.echo(styled(f"group {plain(settings.name)}", bold=True))
    click.echo(f"  order         {_order(settings)}")
    click.echo(f"  attempts      {_attempts_told(settings)}")
    click.echo(f"  backoff       {_backoff_told(settings)}")
    if settings.weight > 1:
        click.echo(f"  weight        {settings.weight}")
    click.echo(f"  created       {format_instant(settings.created_at_ms)}")
    click.echo(f"  dead letters  {dead}")
    for unequal in settings.unequal_filters:
        filters = ", ".join(
            f"{plain(use.expression)} ({counted(use.client_count, 'client')})"
            for use in unequal.filters
        )
        click.echo(
            f"  filters       differ on {plain(unequal.topic)}: {filters}; each gets what "
            "it wants, and a slow one holds the others up"
        )
    for each in settings.services:
        if len(each.services) > 1:
            uses = ", ".join(
                f"{plain(use.service)} ({counted(use.client_count, 'client')})"
                for use in each.services
            )
            click.echo(
                f"  services      {uses} share {plain(each.topic)}: each message goes to one"
            )
    click.echo()
    if not topics:
        click.echo("it has read no topic yet")
        shards.finish()
        return
    now_ms = clock.now_ms()
    columns = (Column("TOPIC", flex=True), *LAG_COLUMNS, Column("LAST CONSUMED"))
    rows = [_progress_row(each, now_ms) for each in topics]
    print_table(shards.columns(columns), shards.rows(rows, topics))
    blocked = sum(each.blocked_message_group_count for each in topics)
    if blocked:
        parked = sum(each.parked_message_group_count for each in topics)
        held = sum(each.held_count for each in topics)
        click.echo()
        click.echo(
            f"{counted(blocked, 'message group')} blocked, {parked:,} of them by dead letters, "
            f"{counted(held, 'message')} behind; see `latermq pending blocked {plain(name)}`"
        )
    shards.finish()


def _of_all(shards: Shards, name: str) -> tuple[group_pb2.Group, list[group_pb2.TopicProgress]]:
    """Return what all shards have of a group, as one, and how far it is in each."""
    request = group_pb2.GetGroupRequest(name=name)
    parts = shards.each(lambda broker: broker.call(broker.groups.GetGroup, request).group)
    for number, part in parts:
        shards.remember(number, part.topics)
    topics = [each for _, part in parts for each in part.topics]
    return whole_group([part for _, part in parts]), topics


@group.command(epilog=example("latermq group delete billing --yes"))
@click.argument("name")
@yes_option
@broker_options
def delete(name: str, yes: bool, endpoint: str, as_json: bool) -> None:
    """Delete the group NAME: its progress, leases and retries. Its dead letters stay readable.

    Asks first, unless --yes. Names the live consumers of NAME: they wait, and do not make it again.
    """
    with Connection(endpoint) as broker:
        consumers = live_consumers(broker, group=name)
        say_who_waits(consumers, "until it is created")
        confirmed(f"Delete group {plain(name)} and its progress?", yes=yes)
        broker.call(broker.groups.DeleteGroup, group_pb2.DeleteGroupRequest(name=name))
    if as_json:
        print_json({"name": name, "deleted": True, "live_consumers": consumers})
    else:
        click.echo(f"group {plain(name)} deleted; its dead letters stay in %DLQ%{plain(name)}")


@group.command(
    epilog=example(
        "latermq group reset billing --topic orders --to -1h",
        "latermq group reset billing --topic orders --to earliest --yes",
        "latermq group reset billing --topic orders --to 2026-05-01T18:30:00Z",
    )
)
@click.argument("name")
@click.option("--topic", required=True, help="The topic to read again, or to skip ahead in.")
@click.option(
    "--to", "to_ms", type=reset_target, required=True, metavar="TIME",
    help="earliest, now, -1h, or a date: go on with the first message stored at or after it.",
)  # fmt: skip
@yes_option
@broker_options
def reset(name: str, topic: str, to_ms: int, yes: bool, endpoint: str, as_json: bool) -> None:
    """Move the group NAME to another time in a topic. Its leases and retries there are void.

    Asks first, unless --yes.
    """
    confirmed(
        f"Void the leases and retries of group {plain(name)} in {plain(topic)} and move it?",
        yes=yes,
    )
    request = group_pb2.ResetGroupRequest(name=name, topic=topic, to_ms=to_ms)
    with Connection(endpoint) as broker:
        shards = broker.shards
        parts = shards.each(lambda each: list(each.call(each.groups.ResetGroup, request).offsets))
    where = "the earliest message" if to_ms == 0 else format_instant(to_ms)
    for number, offsets in parts:
        if as_json:
            place = {"shard": number} if shards.several else {}
            print_json({**place, "name": name, "topic": topic, "to_ms": to_ms, "offsets": offsets})
            continue
        places = ", ".join(f"queue {queue}: {offset:,}" for queue, offset in enumerate(offsets))
        at = f" in shard {number}" if shards.several else ""
        click.echo(f"group {plain(name)} goes on in {plain(topic)}{at} from {where} ({places})")
    shards.finish()


def _print_policy(settings: group_pb2.Group, as_json: bool) -> None:
    if as_json:
        print_json(jsonable(settings))
        return
    order = f"{_order(settings)}, " if settings.fifo else ""
    number = counted(settings.max_attempts, "attempt")
    if settings.max_attempts == UNLIMITED:
        number = "unlimited attempts"
    weight = f", weight {settings.weight}" if settings.weight > 1 else ""
    backoff = _backoff_told(settings)
    click.echo(f"group {plain(settings.name)}: {order}{number}, backoff {backoff}{weight}")


def _order(settings: group_pb2.Group) -> str:
    if not settings.fifo:
        return "any"
    if settings.lite_topics_of:
        alone = ", exclusive" if settings.lite_exclusive else ""
        parks = ", parks" if settings.on_dead == group_pb2.PARK else ""
        return f"lite topics of {plain(settings.lite_topics_of)}{alone}{parks}"
    return "fifo, parks" if settings.on_dead == group_pb2.PARK else "fifo"


def _backoff(settings: group_pb2.Group) -> str:
    """Write the waits that hold: the group's own, or the broker's, if it is one that tells them."""
    holds = read_backoff(settings.backoff) or read_backoff(settings.default_backoff)
    return str(holds or _DEFAULT_BACKOFF)


def _backoff_told(settings: group_pb2.Group) -> str:
    """Say what the backoff is, and that it is the broker's own where it is."""
    if read_backoff(settings.backoff) is not None:
        return _backoff(settings)
    steps = "the broker's delivery.delay_levels_ms from the third"
    return f"{_DEFAULT_BACKOFF}, {steps}: {_backoff(settings)}"


def _attempts_told(settings: group_pb2.Group) -> str:
    if settings.max_attempts == UNLIMITED:
        return "unlimited: a message comes again until it is done"
    return f"{settings.max_attempts:,}, then a dead letter"


def lag_cells(progress: group_pb2.TopicProgress, now_ms: int) -> tuple[str, ...]:
    """Write the cells of `LAG_COLUMNS`."""
    oldest_ms = progress.oldest_unread_at_ms
    return (
        f"{progress.ready_count:,}",
        format_duration(max(0, now_ms - oldest_ms)) if oldest_ms else "-",
        f"{progress.in_flight_count:,}",
        f"{progress.backoff_count:,}",
        rate(progress.in_per_s),
        rate(progress.out_per_s),
    )


def rate(per_s: float) -> str:
    """Write a rate in few characters: `0`, `0.25/s`, `1,200/s`."""
    if not per_s:
        return "0"
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.2g}/s"


def _row(settings: group_pb2.Group, now_ms: int) -> tuple[str, ...]:
    return (
        settings.name,
        *lag_cells(settings.progress, now_ms),
        f"{settings.dead_letter_count:,}",
        _order(settings),
        allowed(settings.max_attempts),
        _backoff(settings),
        format_instant(settings.created_at_ms),
    )


def _progress_row(progress: group_pb2.TopicProgress, now_ms: int) -> tuple[str, ...]:
    last = progress.last_consumed_at_ms
    return (
        progress.topic,
        *lag_cells(progress, now_ms),
        format_ago(last, now_ms) if last else "never",
    )
