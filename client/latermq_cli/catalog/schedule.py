"""`latermq schedule`: list, show, create, pause, resume, remove, prune, run-now."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import (
    broker_options,
    confirmed,
    duration,
    example,
    limit_option,
    pair,
    text,
    yes_option,
)
from latermq_cli.messages.send import PRIORITY_MAX, read_body
from latermq_cli.terminal.bodies import body_lines
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import page_width, print_json, print_table, styled
from latermq_cli.terminal.facts import fact, room
from latermq_cli.terminal.failures import RefusedError
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_ago, format_due, format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import schedule_pb2
from latermq_text.durations import format_duration, format_ticks

BODY_LINES_MAX: Final = 6
MORE: Final = "--json has the rest"

MISSED: Final = ("skip", "one", "all")
_NAME: Final = click.argument("name")


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Send a message again and again: one for each tick, over restarts of the broker.

    A schedule says when: every so often, or by a cron expression in a time zone. It is kept in the
    broker, which sends its message to a topic; any consumer group takes it from there.
    """


@schedule.command(
    epilog=example(
        "latermq schedule create sweep --topic sweeps --every 15m",
        "latermq schedule create report --topic reports --cron '0 6 * * 1-5' --tz Europe/Berlin",
        "latermq schedule create report --topic reports --cron @daily --replace",
    )
)
@_NAME
@click.option("--topic", required=True, help="Where its messages go.")
@click.option(
    "--every", type=duration, metavar="DURATION",
    help="How often: 15m is at :00, :15, :30 and :45, by UTC; at least 1s.",
)  # fmt: skip
@click.option(
    "--cron", type=text, default="", metavar="FIELDS",
    help="Instead: 'minute hour day month weekday', or @hourly, @daily, @weekly, @monthly.",
)  # fmt: skip
@click.option(
    "--tz", "zone", type=text, default="", metavar="ZONE",
    help="The time zone of --cron, such as Europe/Berlin [UTC].",
)  # fmt: skip
@click.option(
    "--missed", type=click.Choice(MISSED), default="one", show_default=True,
    help="Of ticks that are due together, after an outage: the last; the last if it is less than a "
    "minute late (skip); or each of the last day.",
)  # fmt: skip
@click.option("--body", default="", help="As of `latermq send` [the tick's time, in ISO 8601].")
@click.option("--tag", type=text, default="")
@click.option("--key", "keys", type=text, multiple=True, help="Repeatable.")
@click.option("--property", "properties", type=pair, multiple=True, metavar="NAME=VALUE")
@click.option("--message-group", type=text, default="", metavar="NAME")
@click.option("--priority", type=click.IntRange(0, PRIORITY_MAX), metavar="N")
@click.option("--replace", is_flag=True, help="Alter it if it is there and says something else.")
@broker_options
def create(
    name: str,
    every: int | None,
    missed: str,
    body: str,
    properties: tuple[tuple[str, str], ...],
    replace: bool,
    endpoint: str,
    as_json: bool,
    **fields: Any,
) -> None:
    """Create the schedule NAME.

    Doing it twice is no error as long as it says the same. Each message has the properties
    latermq-schedule, the name, and latermq-tick, the time it is for; its id is the tick's.
    """
    wanted = schedule_pb2.Schedule(
        name=name,
        every_ms=every or 0,
        missed=missed.upper(),
        body=read_body(body),
        properties=dict(properties),
        **fields,
    )
    request = schedule_pb2.PutScheduleRequest(schedule=wanted, keep=not replace)
    with Connection(endpoint) as broker:
        put = broker.call(broker.schedules.PutSchedule, request)
    if put.differences and not replace:
        raise RefusedError(
            f"schedule {plain(name)} is there already, with another "
            f"{', '.join(put.differences)}; --replace alters it"
        )
    _print_one(put.schedule, as_json)


@schedule.command("list", epilog=example("latermq schedule list"))
@limit_option
@watch_option
@broker_options
def list_(limit: int, endpoint: str, as_json: bool) -> None:
    """List the schedules: when each ticks next, and when it did last.

    Below them those that an app's code had and that none of its running workers declares any more.
    """
    with Connection(endpoint) as broker:
        entries, more = broker.pages(
            broker.schedules.ListSchedules, schedule_pb2.ListSchedulesRequest(), "schedules", limit
        )
    if as_json:
        print_json({"schedules": [_listed(each) for each in entries], "more": more})
        return
    if not entries:
        click.echo("no schedules; `latermq schedule create NAME --topic T --every 15m` makes one")
        return
    columns = (
        Column("SCHEDULE", flex=True),
        Column("WHEN"),
        Column("TOPIC", flex=True),
        Column("NEXT"),
        Column("LAST"),
        Column("TICKS", right=True),
    )
    print_table(columns, [_row(each) for each in entries])
    idle = [each for each in entries if each.undeclared_since_ms]
    for each in idle:
        click.echo(f"{plain(each.name)}: {_idle(each)}")
    if idle:
        click.echo("`latermq schedule prune` removes what no code has any more")
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")


@schedule.command(epilog=example("latermq schedule show report"))
@_NAME
@broker_options
def show(name: str, endpoint: str, as_json: bool) -> None:
    """Show the schedule NAME, with its message."""
    entry = _ask(endpoint, lambda broker: broker.schedules.GetSchedule, name).schedule
    if as_json:
        print_json(jsonable(entry))
        return
    width, now_ms = page_width(), clock.now_ms()
    next_at = f"{format_due(entry.next_at_ms)} ({format_ago(entry.next_at_ms, now_ms)})"
    if entry.behind_ms:
        next_at += f", {format_duration(entry.behind_ms)} later than its calendar says"
    body = ["the tick's time"]
    if entry.message_withheld:
        body = [f"not shown: that takes the right body or sub on topic {entry.topic}"]
    elif entry.body:
        body = body_lines(entry.body, "", room(width), lines_max=BODY_LINES_MAX, more=MORE)
    facts = (
        ("when", [_when(entry)]),
        ("topic", [entry.topic]),
        ("next", [_paused(entry) if entry.paused else next_at]),
        ("last", [format_due(entry.last_at_ms)] if entry.last_at_ms else ["-"]),
        ("ticks", [f"{entry.ticks:,}"]),
        ("missed", [schedule_pb2.Schedule.Missed.Name(entry.missed).lower()]),
        ("created", [format_instant(entry.created_at_ms)]),
        ("declared", _declared(entry)),
        ("tag", [entry.tag] if entry.tag else []),
        ("keys", entry.keys),
        ("group", [entry.message_group] if entry.message_group else []),
        ("priority", [str(entry.priority)] if entry.HasField("priority") else []),
        ("properties", [f"{key}={value}" for key, value in sorted(entry.properties.items())]),
        ("body", body),
    )
    click.echo(styled(f"schedule {plain(entry.name)}", bold=True))
    for label, values in facts:
        for line in fact(label, values, width):
            click.echo(line)


@schedule.command(epilog=example("latermq schedule pause report"))
@_NAME
@broker_options
def pause(name: str, endpoint: str, as_json: bool) -> None:
    """Have the schedule NAME send nothing until it is resumed."""
    answer = _ask(endpoint, lambda broker: broker.schedules.PauseSchedule, name)
    _print_one(answer.schedule, as_json)


@schedule.command(epilog=example("latermq schedule resume report"))
@_NAME
@broker_options
def resume(name: str, endpoint: str, as_json: bool) -> None:
    """Have the schedule NAME tick again; what was due meanwhile is not made up for."""
    answer = _ask(endpoint, lambda broker: broker.schedules.ResumeSchedule, name)
    _print_one(answer.schedule, as_json)


@schedule.command(epilog=example("latermq schedule remove report --yes"))
@_NAME
@yes_option
@broker_options
def remove(name: str, yes: bool, endpoint: str, as_json: bool) -> None:
    """Remove the schedule NAME; what it has sent stays.

    Asks first, unless --yes.
    """
    confirmed(f"Remove schedule {plain(name)}?", yes=yes)
    _ask(endpoint, lambda broker: broker.schedules.RemoveSchedule, name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        click.echo(f"schedule {plain(name)} removed")


@schedule.command(
    epilog=example(
        "latermq schedule prune --dry-run",
        "latermq schedule prune --app billing --idle 1d --yes",
    )
)
@click.option("--app", type=text, default="", metavar="NAME", help="Of this app alone [any].")
@click.option(
    "--idle", type=duration, default="0s", show_default=True, metavar="DURATION",
    help="Only those that no running worker has declared for so long.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@yes_option
@broker_options
def prune(app: str, idle: int, dry_run: bool, yes: bool, endpoint: str, as_json: bool) -> None:
    """Remove the schedules that no running worker declares any more.

    Those are what is left of a schedule that was renamed or taken out of the code, and all those of
    an app whose workers are stopped: its next worker makes them anew. One that was made by hand, or
    declared by an app without a worker, stays; with --app, one that another app declared, too. Asks
    first, unless --yes.
    """
    request = schedule_pb2.PruneSchedulesRequest(app=app, idle_ms=idle, dry_run=True)
    with Connection(endpoint) as broker:
        pruned = broker.call(broker.schedules.PruneSchedules, request)
        if pruned.removed and not dry_run:
            if not as_json and not yes:
                _print_pruned(pruned.removed)
            names = ", ".join(plain(each.name) for each in pruned.removed)
            confirmed(f"Remove {names}?", yes=yes)
            request.dry_run = False
            pruned = broker.call(broker.schedules.PruneSchedules, request)
    if as_json:
        removed = [_listed(each) for each in pruned.removed]
        print_json({"schedules": removed, "removed": not dry_run})
        return
    if not pruned.removed:
        click.echo("nothing to prune: each schedule is declared by a running worker, or stays")
        return
    if dry_run:
        _print_pruned(pruned.removed)
        return
    for each in pruned.removed:
        click.echo(f"schedule {plain(each.name)} removed")


def _print_pruned(entries: Iterable[Any]) -> None:
    for each in entries:
        click.echo(f"schedule {plain(each.name)}: {_idle(each)}")


@schedule.command("run-now", epilog=example("latermq schedule run-now report"))
@_NAME
@broker_options
def run_now(name: str, endpoint: str, as_json: bool) -> None:
    """Send the message of the schedule NAME now, paused or not; its ticks stay as they are."""
    answer = _ask(endpoint, lambda broker: broker.schedules.RunSchedule, name)
    if as_json:
        print_json({"name": name, "message_id": answer.message_id})
    else:
        click.echo(f"schedule {plain(name)} sent {answer.message_id}")


def _when(entry: Any) -> str:
    return format_ticks(entry.every_ms, entry.cron, entry.zone)


def _ask(endpoint: str, method: Callable[[Connection], Any], name: str) -> Any:
    with Connection(endpoint) as broker:
        return broker.call(method(broker), schedule_pb2.ScheduleRequest(name=name))


def _listed(entry: Any) -> dict[str, Any]:
    """Return what a listing tells, which is not the message."""
    hidden = ("body", "tag", "keys", "properties", "message_group", "priority")
    return {name: value for name, value in jsonable(entry).items() if name not in hidden}


def _print_one(entry: Any, as_json: bool) -> None:
    if as_json:
        print_json(jsonable(entry))
        return
    next_at = _paused(entry) if entry.paused else f"next at {format_due(entry.next_at_ms)}"
    click.echo(f"schedule {plain(entry.name)}: {plain(_when(entry))}, {plain(next_at)}")


def _idle(entry: Any) -> str:
    """Say since when no running worker declares it, and whose it was."""
    apps = ", ".join(each.app for each in entry.declarers if each.app)
    if not entry.undeclared_since_ms:
        return f"declared by {plain(apps)}, without a worker"
    since = format_instant(entry.undeclared_since_ms)
    return f"declared by no running worker since {since} (of {plain(apps)})"


def _declared(entry: Any) -> list[str]:
    """Say who declares it; nothing where nobody is known to."""
    lines = []
    for each in entry.declarers:
        if not each.app:
            lines.append("by hand")
        elif each.running:
            lines.append(f"by {each.app}, of which a worker runs")
        elif each.since_ms:
            since = format_instant(each.since_ms)
            lines.append(f"by {each.app}, of which no worker runs since {since}")
        else:
            lines.append(f"by {each.app}, without a worker")
    return lines


def _paused(entry: Any) -> str:
    return f"paused by the broker: {entry.fault}" if entry.fault else "paused"


def _row(entry: Any) -> tuple[str, ...]:
    return (
        entry.name,
        _when(entry),
        entry.topic,
        ("failed" if entry.fault else "paused")
        if entry.paused
        else format_instant(entry.next_at_ms) + " (late)" * bool(entry.behind_ms),
        format_instant(entry.last_at_ms),
        f"{entry.ticks:,}",
    )
