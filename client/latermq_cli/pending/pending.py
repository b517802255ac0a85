"""`latermq pending`: what waits and until when; bring it forward, put it off, cancel it."""

from collections.abc import Iterator
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import (
    broker_options,
    confirmed,
    duration,
    example,
    filter_options,
    instant,
    limit_option,
    yes_option,
)
from latermq_cli.pending.blocked import blocked
from latermq_cli.pending.pending_change import change
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, print_json, print_table
from latermq_cli.terminal.failures import OK, CommandError, RefusedError, error_of
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_ago, format_due
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import pending_pb2
from latermq_text.attempts import counted_of
from latermq_text.letters import failure_words

KINDS: Final = {
    "delayed": pending_pb2.DELAYED,
    "backoff": pending_pb2.BACKOFF,
    "in-flight": pending_pb2.IN_FLIGHT,
    "half": pending_pb2.HALF,
}
CLOCKS_APART_MS_MAX: Final = 60_000  # within it the broker says what is past
_READY: Final = "ready"


@click.group(cls=CommandGroup)
def pending() -> None:
    """See what waits: delayed messages, retries, what consumers hold, open transactions.

    A message is pending as delayed (sent with a delivery time that has not come), backoff (one
    group had it and its next attempt is not due), ready (the same, and nothing is missing but a
    receive: its wait is over, or a consumer gave it back), in-flight (a consumer holds it; the
    due time is when its lease ends), or half (its transaction has not ended; the due time is when
    a producer is asked how it did, or, after the last check, when it is rolled back).
    """


pending.add_command(blocked)

filters: Final = filter_options(
    click.option("--topic", default="", help="Only what belongs to this topic."),
    click.option("--group", default="", help="Only this group's retries and leases."),
    click.option(
        "--kind", type=click.Choice(list(KINDS)), help="Only this kind; backoff has ready too."
    ),
    click.option(
        "--due-before", type=instant, default=None, metavar="TIME",
        help="Only what is due before then, e.g. 10m (from now) or a date.",
    ),
    click.option(
        "--delay-level", type=click.IntRange(min=1), metavar="N",
        help="Only messages sent with this delay level.",
    ),
)  # fmt: skip


@pending.command(
    "list",
    epilog=example(
        "latermq pending list",
        "latermq pending list --topic orders --kind delayed --due-before 10m",
        "latermq pending list --group billing --kind backoff",
    ),
)
@filters
@limit_option
@watch_option
@broker_options
def list_(limit: int, endpoint: str, as_json: bool, **wanted: Any) -> None:
    """List what waits, the next due first.

    A retry whose backoff is over stays listed, as ready, until a consumer receives it; DUE IN says
    how long ago that was. CLIENT holds it, or had it last. ATTEMPTS are those that counted so far,
    and how many the group allows. On a narrow page MESSAGE ID shows its end; --json has all of it.
    """
    request = pending_pb2.ListPendingRequest(filter=_filter(wanted))
    with Connection(endpoint) as broker:
        shards = broker.shards
        messages, more = shards.pages(
            broker.pending.ListPending, request, "messages", limit, lambda each: each.due_at_ms
        )
        if shards.several:
            for each in messages:
                each.pending_id += f"@{shards.of(each)}"
    if as_json:
        print_json({"messages": [shards.jsonable(each) for each in messages], "more": more})
        shards.finish()
        return
    if not messages:
        click.echo("nothing is pending")
        shards.finish()
        return
    now_ms = clock.now_ms()
    columns: tuple[Column, ...] = (
        Column("DUE", optional=True),
        Column("DUE IN", right=True),
        Column("KIND"),
        Column("TOPIC", flex=True),
        Column("GROUP", flex=True, spare=3),
        Column("CLIENT", flex=True, spare=1),
        Column("ATTEMPTS", right=True, spare=4),
        Column("LAST FAILURE", flex=True, spare=2),
        Column("TAG", flex=True, optional=True),
        Column("LEVEL", right=True, optional=True),
        Column("MESSAGE ID", flex=True, by_end=True),  # its begin is the sender's, in all alike
        Column("ID"),
    )
    rows = [_row(each, now_ms) for each in messages]
    if any(each.HasField("priority") for each in messages):  # few topics have any
        columns = (*columns[:-1], Column("PRIORITY", right=True), columns[-1])
        rows = [
            (*row[:-1], _priority(each), row[-1]) for row, each in zip(rows, messages, strict=True)
        ]
    print_table(shards.columns(columns), shards.rows(rows, messages))
    if more:
        click.echo(f"… more than {limit:,}; raise --limit, or `latermq pending count`")
    shards.finish()


@pending.command(epilog=example("latermq pending count", "latermq pending count --topic orders"))
@filters
@watch_option
@broker_options
def count(endpoint: str, as_json: bool, **wanted: Any) -> None:
    """Count what waits, by kind, topic and group."""
    request = pending_pb2.CountPendingRequest(filter=_filter(wanted))
    with Connection(endpoint) as broker:
        shards = broker.shards
        parts = shards.each(lambda each: each.call(each.pending.CountPending, request))
    total = sum(part.total for _, part in parts)
    if as_json:
        for number, part in parts:
            shards.remember(number, part.counts)
        counts = [shards.jsonable(each) for _, part in parts for each in part.counts]
        print_json({**jsonable(parts[0][1]), "total": total, "counts": counts})
        shards.finish()
        return
    if not total:
        click.echo("nothing is pending")
        shards.finish()
        return
    now_ms = clock.now_ms()
    columns = (
        Column("KIND"),
        Column("TOPIC", flex=True),
        Column("GROUP", flex=True),
        Column("COUNT", right=True),
        Column("NEXT DUE"),
        Column("DUE IN", right=True),
    )
    rows = [
        (str(number), *row) if shards.several else row
        for number, part in parts
        for each in part.counts
        for row in _count_rows(each, now_ms)
    ]
    print_table(shards.columns(columns), rows)
    click.echo(f"{total:,} in all")
    shards.finish()


@pending.command(epilog=example("latermq pending expedite ID"))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@broker_options
def expedite(ids: tuple[str, ...], endpoint: str, as_json: bool) -> None:
    """Make it due now. ID: from `latermq pending list`, or a message id that waits only once."""
    request = pending_pb2.ChangePendingRequest(ids=ids)
    with Connection(endpoint) as broker:
        changed = change(broker.shards, broker.pending.ExpeditePending, request)
    _report(changed, "due now", as_json)


@pending.command(
    epilog=example(
        "latermq pending postpone ID --delay 2h",
        "latermq pending postpone ID --at 2026-05-01T18:30:00",
    )
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--delay", type=duration, default=None, help="Due this long from now.")
@click.option("--at", type=instant, default=None, metavar="TIME", help="Due then.")
@broker_options
def postpone(
    ids: tuple[str, ...], delay: int | None, at: int | None, endpoint: str, as_json: bool
) -> None:
    """Make it due at another time. ID: as for expedite."""
    if (delay is None) == (at is None):
        raise click.UsageError("say when it is due: either --delay or --at")
    now_ms = clock.now_ms()
    due_ms = at if at is not None else now_ms + (delay or 0)
    if due_ms < now_ms - CLOCKS_APART_MS_MAX:
        raise RefusedError(
            f"{format_due(due_ms)} is past ({format_ago(due_ms, now_ms)}); "
            "`latermq pending expedite` makes it due now"
        )
    request = pending_pb2.ChangePendingRequest(ids=ids, due_at_ms=due_ms)
    with Connection(endpoint) as broker:
        changed = change(broker.shards, broker.pending.PostponePending, request)
    _report(changed, f"due {format_due(due_ms)}", as_json)


@pending.command(epilog=example("latermq pending commit ID --yes"))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@yes_option
@broker_options
def commit(ids: tuple[str, ...], yes: bool, endpoint: str, as_json: bool) -> None:
    """Deliver a half message whose producer does not say how its transaction ended.

    ID: as for expedite. `latermq pending cancel` rolls it back. Asks first, unless --yes.
    """
    confirmed(f"Commit {counted(len(ids), 'transaction')}?", yes=yes)
    request = pending_pb2.ChangePendingRequest(ids=ids)
    with Connection(endpoint) as broker:
        changed = change(broker.shards, broker.pending.CommitPending, request)
    _report(changed, "committed", as_json)


@pending.command(epilog=example("latermq pending cancel ID --yes"))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@yes_option
@broker_options
def cancel(ids: tuple[str, ...], yes: bool, endpoint: str, as_json: bool) -> None:
    """Never deliver it: a delayed or half message to anyone, a retry to its group.

    ID: as for expedite. Asks first, unless --yes.
    """
    confirmed(f"Cancel {counted(len(ids), 'pending message')}?", yes=yes)
    request = pending_pb2.ChangePendingRequest(ids=ids)
    with Connection(endpoint) as broker:
        changed = change(broker.shards, broker.pending.CancelPending, request)
    _report(changed, "cancelled", as_json)


def _kind_word(kind: int) -> str:
    return next((word for word, number in KINDS.items() if number == kind), str(kind))


def _count_rows(row: pending_pb2.PendingCount, now_ms: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a kind; ready retries have a row of their own beside the others."""
    due_ms, group, waits = row.next_due_at_ms, row.group or "-", row.count
    if row.ready_count:
        waits -= row.ready_count
        yield (
            _READY,
            row.topic,
            group,
            f"{row.ready_count:,}",
            "-",
            _due_in(min(due_ms, now_ms), now_ms),
        )
    if not waits:
        return
    due = ("-", "-")  # the first of all is ready: it is not told when these are
    if not row.ready_count or due_ms > now_ms:
        due = format_due(due_ms), _due_in(due_ms, now_ms)
    yield _kind_word(row.kind), row.topic, group, f"{waits:,}", *due


def _filter(wanted: dict[str, Any]) -> pending_pb2.PendingFilter:
    kind = wanted["kind"]
    return pending_pb2.PendingFilter(
        topic=wanted["topic"],
        group=wanted["group"],
        kind=KINDS[kind] if kind else None,
        due_before_ms=wanted["due_before"] or 0,
        delay_level=wanted["delay_level"] or 0,
    )


def _row(message: pending_pb2.PendingMessage, now_ms: int) -> tuple[str, ...]:
    retry = message.kind in (pending_pb2.BACKOFF, pending_pb2.IN_FLIGHT)
    attempts = counted_of(message.attempt, message.max_attempts, joined="/") if retry else "-"
    if message.kind == pending_pb2.HALF:
        attempts = f"{message.checks}/{message.checks_max} checks"
    return (
        format_due(message.due_at_ms),
        _due_in(message.due_at_ms, now_ms),
        _READY if message.ready else _kind_word(message.kind),
        message.topic,
        message.group or "-",
        message.client_id or "-",
        attempts,
        failure_words(message.last_failure_class, message.last_failure_text) or "-",
        message.tag or "-",
        str(message.delay_level or "-"),
        message.message_id,
        message.pending_id,
    )


def _priority(message: pending_pb2.PendingMessage) -> str:
    return str(message.priority) if message.HasField("priority") else "-"


def _due_in(due_ms: int, now_ms: int) -> str:
    """Say how long it has to wait still, or how overdue it is, where that is known."""
    if not due_ms:
        return "-"
    if due_ms == now_ms:
        return "now"
    return format_ago(due_ms, now_ms).removeprefix("in ")


def _report(changed: pending_pb2.ChangePendingResponse, done: str, as_json: bool) -> None:
    failed = [each for each in changed.results if each.status.code != OK]
    if as_json:
        results = [
            {**jsonable(each), "code": each.status.code, "error": _error_text(each)}
            for each in changed.results
        ]
        print_json({"changed": len(results) - len(failed), "results": results})
    for each in changed.results:
        if each.status.code == OK and not as_json:
            click.echo(f"{plain(each.message_id or each.id)} {done}")
    if len(failed) == 1:
        status = failed[0].status
        raise error_of(status.code, status.message)
    if failed:
        first = failed[0].status.message
        raise CommandError(f"{len(failed)} of {len(changed.results)} refused; the first: {first}")


def _error_text(result: pending_pb2.ChangePendingResult) -> str:
    return "" if result.status.code == OK else result.status.message
