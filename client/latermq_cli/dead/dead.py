"""`latermq dead`: list the dead letters of a group, and tell the story of one."""

from collections.abc import Iterable
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import LISTED_MAX, broker_options, example, limit_option
from latermq_cli.connection.shards import Shards
from latermq_cli.dead.dead_filter import (
    class_fields,
    class_words,
    classes_there,
    filter_of,
    letter_filters,
    state_option,
)
from latermq_cli.dead.dead_story import Telling, tell
from latermq_cli.terminal.commands import CommandGroup, Lazy
from latermq_cli.terminal.console import (
    counted,
    page_width,
    print_json,
    print_table,
)
from latermq_cli.terminal.failures import NotThereError, RefusedError
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_text.durations import format_duration
from latermq_text.letters import failure_of

_SUMMARY_ROWS_MAX: Final = 5
_NOTHING_TOLD: Final = "no failure told (leases ended, or a client without failure reports)"

_CHANGE: Final = "latermq_cli.dead.dead_change"


@click.group(
    cls=CommandGroup,
    lazy={
        "redrive": Lazy(_CHANGE, "redrive", "Send dead letters back to their group or to a topic."),
        "drop": Lazy(_CHANGE, "drop", "Give dead letters up for good."),
    },
)
def dead() -> None:
    """Dead letters: what died in a group, why, and what may live again."""


@dead.command(
    "list",
    epilog=example(
        "latermq dead list billing",
        "latermq dead list billing --by signature",
        "latermq dead list billing --class TimeoutError --since -1h",
    ),
)
@click.argument("group")
@letter_filters
@state_option
@click.option(
    "--by", type=click.Choice(["signature"]), help="Count what died of the same thing instead."
)
@click.option("--oldest-first", is_flag=True, help="Start with the oldest [newest].")
@limit_option
@watch_option
@broker_options
def list_(
    group: str,
    state: str,
    by: str | None,
    oldest_first: bool,
    limit: int,
    endpoint: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List the dead letters of GROUP, one line each, the newest first."""
    request = dead_pb2.ListDeadLettersRequest(
        group=group, filter=filter_of(wanted, state), newest_first=not oldest_first
    )
    with Connection(endpoint) as broker:
        listing, shards = broker.dead_letters.ListDeadLetters, broker.shards
        if by:
            letters, more = shards.pages(listing, request, "letters", LISTED_MAX)
            others = None if letters else classes_there(broker, group, wanted["failure_class"])
            filtered = any(wanted.values())
            _show_kinds(group, _by_signature(letters), more, others, as_json, filtered=filtered)
            shards.finish()
            return
        sign = 1 if oldest_first else -1
        letters, more = shards.pages(
            listing, request, "letters", limit, lambda each: sign * each.dead_at_ms
        )
        others = None if letters else classes_there(broker, group, wanted["failure_class"])
    if as_json:
        shown = [shards.jsonable(each) for each in letters]
        print_json({"group": group, "letters": shown, "more": more, **class_fields(others)})
    elif not letters:
        like_that = " like that" if any(wanted.values()) else ""
        click.echo(f"no dead letters in {plain(group)}{like_that}{class_words(others)}")
    else:
        _print_letters(letters, shards)
        _print_summary(group, letters, _by_signature(letters), more)
    shards.finish()


@dead.command(
    epilog=example(
        "latermq dead show billing 01AABBCCDDEEFF00112233445566778899",
        "latermq dead show billing --offset 3 --stack",
        "latermq dead show billing          (the newest)",
    )
)
@click.argument("group")
@click.argument("message_id", required=False, default="")
@click.option("--offset", type=click.IntRange(min=0), help="Its number in %DLQ%GROUP.")
@click.option("--stack", is_flag=True, help="Show the stack traces of the failures.")
@click.option("--body", is_flag=True, help="Show the whole body.")
@broker_options
def show(
    group: str,
    message_id: str,
    offset: int | None,
    stack: bool,
    body: bool,
    endpoint: str,
    as_json: bool,
) -> None:
    """Tell the story of one dead letter of GROUP: what it was, each attempt, why it died.

    Without MESSAGE_ID and --offset: of the newest.
    """
    if message_id and offset is not None:
        raise click.UsageError("say either MESSAGE_ID or --offset")
    with Connection(endpoint) as broker:
        shards = broker.shards
        if offset is not None and shards.several:
            raise RefusedError(f"each shard has a letter {offset}: say in which with --shard N")
        if not message_id and offset is None:
            newest = _newest(broker, group)
            number, message_id = shards.of(newest), newest.message_id
            offset = int(newest.queue_offset)
            broker = shards.to(number)
            letter = _letter(broker, group, "", offset)
        else:
            number, letter = shards.first(
                lambda each: _letter(each, group, message_id, offset or 0)
            )
            broker = shards.to(number)
        if as_json:
            shards.remember(number, [letter])
            print_json(shards.jsonable(letter))
            return
        alike_count = _alike_count(broker, letter)
    telling = Telling(width=page_width(), stacks=stack, whole_body=body, alike_count=alike_count)
    for line in tell(letter, telling):
        click.echo(line)


def _letter(broker: Connection, group: str, message_id: str, offset: int) -> dead_pb2.DeadLetter:
    request = dead_pb2.GetDeadLetterRequest(group=group, message_id=message_id, queue_offset=offset)
    letter: dead_pb2.DeadLetter = broker.call(broker.dead_letters.GetDeadLetter, request).letter
    return letter


def _newest(broker: Connection, group: str) -> dead_pb2.DeadLetter:
    request = dead_pb2.ListDeadLettersRequest(
        group=group, newest_first=True, filter=dead_pb2.DeadLetterFilter(state=dead_pb2.ANY)
    )
    listing = broker.dead_letters.ListDeadLetters
    newest, _ = broker.shards.pages(listing, request, "letters", 1, lambda each: -each.dead_at_ms)
    if not newest:
        raise NotThereError(f"no dead letters in {plain(group)}")
    letter: dead_pb2.DeadLetter = newest[0]
    return letter


def _alike_count(broker: Connection, letter: dead_pb2.DeadLetter) -> int:
    """Count other letters of the group that died of the same, as far as one page tells."""
    if not letter.signature:
        return 0
    request = dead_pb2.ListDeadLettersRequest(
        group=letter.group, filter=dead_pb2.DeadLetterFilter(signature=letter.signature)
    )
    alike, _ = broker.pages(broker.dead_letters.ListDeadLetters, request, "letters", 1000)
    return sum(each.queue_offset != letter.queue_offset for each in alike)


def _print_letters(letters: list[dead_pb2.DeadLetter], shards: Shards) -> None:
    now_ms = clock.now_ms()
    columns = (
        Column("OFFSET", right=True),
        Column("DEAD FOR", right=True),
        Column("ATTEMPTS", right=True),
        Column("REASON", optional=True),
        Column("FROM", flex=True),
        Column("LAST FAILURE", flex=True),
        Column("MESSAGE ID", optional=True),
    )
    rows = [
        (
            str(each.queue_offset),
            format_duration(max(0, now_ms - each.dead_at_ms)),
            str(each.attempt_count),
            _reason(each),
            each.origin_topic or "-",
            failure_of(each) or _silence(each),
            each.message_id,
        )
        for each in letters
    ]
    print_table(shards.columns(columns), shards.rows(rows, letters))


SILENCE: Final = {
    "expired": "(lease ended without an answer)",
    "client_gone": "(client gone before it answered)",
}


def _silence(letter: dead_pb2.DeadLetter) -> str:
    """Say what is known where a dead letter names no failure."""
    if letter.reason == "sent":
        return "(none: a producer sent it here)"
    ended = letter.attempts[-1].outcome if letter.attempts else ""
    return SILENCE.get(ended, "(no failure told)")


def _reason(letter: dead_pb2.DeadLetter) -> str:
    if letter.state == dead_pb2.REDRIVEN:
        return "redriven"
    if letter.state == dead_pb2.DROPPED:
        return "dropped"
    return {"attempts_exhausted": "exhausted"}.get(letter.reason, letter.reason)


def _by_signature(letters: Iterable[dead_pb2.DeadLetter]) -> list[dict[str, Any]]:
    """Make one entry per signature, the most frequent first."""
    kinds: dict[str, dict[str, Any]] = {}
    for letter in letters:
        kind = kinds.setdefault(
            letter.signature,
            {
                "signature": letter.signature,
                "count": 0,
                "first_dead_at_ms": letter.dead_at_ms,
                "last_dead_at_ms": letter.dead_at_ms,
                "failure_class": letter.failure_class,
                "failure_text": letter.failure_text,
                "origin_topics": [],
            },
        )
        kind["count"] += 1
        kind["first_dead_at_ms"] = min(kind["first_dead_at_ms"], letter.dead_at_ms)
        kind["last_dead_at_ms"] = max(kind["last_dead_at_ms"], letter.dead_at_ms)
        if letter.origin_topic not in kind["origin_topics"]:
            kind["origin_topics"].append(letter.origin_topic)
    return sorted(kinds.values(), key=_by_frequency)


def _by_frequency(kind: dict[str, Any]) -> tuple[int, bool, str]:
    return -kind["count"], not kind["signature"], kind["signature"]


def _kind_words(kind: dict[str, Any]) -> str:
    class_name, text = kind["failure_class"], " ".join(kind["failure_text"].split())
    words = f"{class_name}: {text}" if class_name and text else class_name or text
    return words or _NOTHING_TOLD


def _show_kinds(
    group: str,
    kinds: list[dict[str, Any]],
    more: bool,
    others: dict[str, int] | None,
    as_json: bool,
    *,
    filtered: bool,
) -> None:
    count = sum(kind["count"] for kind in kinds)
    if as_json:
        answer = {"group": group, "count": count, "signatures": kinds, "more": more}
        print_json({**answer, **class_fields(others)})
        return
    if not kinds:
        like_that = " like that" if filtered else ""
        click.echo(f"no dead letters in {plain(group)}{like_that}{class_words(others)}")
        return
    columns = (
        Column("LETTERS", right=True),
        Column("SIGNATURE"),
        Column("FIRST DIED", optional=True),
        Column("LAST DIED", optional=True),
        Column("FROM", flex=True),
        Column("FAILURE", flex=True),
    )
    rows = [
        (
            f"{kind['count']:,}",
            kind["signature"] or "-",
            format_instant(kind["first_dead_at_ms"]),
            format_instant(kind["last_dead_at_ms"]),
            ", ".join(kind["origin_topics"]),
            _kind_words(kind),
        )
        for kind in kinds
    ]
    print_table(columns, rows)
    click.echo(f"{counted(count, 'dead letter')} of {plain(group)}{_of(more)}")


def _print_summary(
    group: str, letters: list[dead_pb2.DeadLetter], kinds: list[dict[str, Any]], more: bool
) -> None:
    click.echo()
    causes = counted(len(kinds), "kind of failure", "kinds of failure")
    click.echo(f"{counted(len(letters), 'dead letter')}{_of(more)}, {causes}:")
    columns = (Column("LETTERS", right=True), Column("SIGNATURE"), Column("FAILURE", flex=True))
    shown = kinds[:_SUMMARY_ROWS_MAX]
    rows = [(f"{kind['count']:,}", kind["signature"] or "-", _kind_words(kind)) for kind in shown]
    print_table(columns, rows)
    if len(kinds) > len(shown):
        click.echo(f"… `latermq dead list {plain(group)} --by signature` shows all")
    click.echo()
    click.echo(f"`latermq dead show {plain(group)} --offset N` tells the story of one")


def _of(more: bool) -> str:
    return " (there are more; raise --limit)" if more else ""
