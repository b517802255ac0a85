"""`latermq dead redrive` and `latermq dead drop`: jobs over many letters, with progress."""

from collections.abc import Iterable
from typing import Any

import click

from latermq.admin import Method
from latermq_cli.connection.connection import Connection, check_status
from latermq_cli.connection.options import broker_options, confirmed, example, yes_option
from latermq_cli.connection.shards import Shards
from latermq_cli.dead.dead_filter import (
    class_fields,
    class_words,
    classes_there,
    filter_of,
    letter_filters,
)
from latermq_cli.terminal.console import counted, print_json, stderr_is_terminal
from latermq_cli.terminal.failures import CommandError, NotThereError, RefusedError
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import plain
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2


@click.command(
    epilog=example(
        "latermq dead redrive billing --id 01AABBCCDDEEFF00112233445566778899",
        "latermq dead redrive billing --signature 8f3c0011aabbccdd --rate 50",
        "latermq dead redrive billing --all --to-topic orders-again",
        "latermq dead redrive billing --all --dry-run",
    )
)
@click.argument("group")
@click.option("--all", "everything", is_flag=True, help="All that are dead.")
@letter_filters
@click.option("--to-topic", default="", metavar="TOPIC", help="A new message there instead.")
@click.option("--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most N per second, with all other redrives of the group.",
)
@click.option("--dry-run", is_flag=True, help="Only count what would be redriven.")
@broker_options
def redrive(
    group: str,
    everything: bool,
    to_topic: str,
    count_max: int | None,
    rate: int | None,
    dry_run: bool,
    endpoint: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send dead letters of GROUP back.

    They go back to that one group, whose attempts count from 1 again; other groups of the topic do
    not see them. With --to-topic they become new messages there, for every group.
    """
    _choice(everything, wanted)
    request = dead_pb2.RedriveDeadLettersRequest(
        group=group,
        filter=filter_of(wanted),
        to_topic=to_topic,
        max_count=count_max or 0,
        rate_per_second=rate or 0,
        dry_run=dry_run,
    )
    verb = "would be redriven" if dry_run else "redriven"
    with Connection(endpoint) as broker:
        _require_one_place(broker.shards, wanted)
        last = _of_all(broker.shards, broker.dead_letters.RedriveDeadLetters, request, verb)
        others = _others(broker, group, last, wanted)
    done = f"{verb} to {plain(to_topic or group)}"
    _finish(broker.shards, last, wanted, as_json, done, others)


@click.command(
    epilog=example(
        "latermq dead drop billing --id 01AABBCCDDEEFF00112233445566778899",
        "latermq dead drop billing --all --until -30d --yes",
    )
)
@click.argument("group")
@click.option("--all", "everything", is_flag=True, help="All that are dead.")
@letter_filters
@click.option("--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N.")
@click.option("--dry-run", is_flag=True, help="Only count what would be dropped.")
@yes_option
@broker_options
def drop(
    group: str,
    everything: bool,
    count_max: int | None,
    dry_run: bool,
    yes: bool,
    endpoint: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Give dead letters of GROUP up for good. Asks first, unless --yes."""
    _choice(everything, wanted)
    request = dead_pb2.DropDeadLettersRequest(
        group=group, filter=filter_of(wanted), max_count=count_max or 0, dry_run=True
    )
    with Connection(endpoint) as broker:
        _require_one_place(broker.shards, wanted)
        last = _of_all(broker.shards, broker.dead_letters.DropDeadLetters, request, "found")
        if not dry_run and last.changed_count:
            confirmed(
                f"Drop {counted(last.changed_count, 'dead letter')} of {plain(group)}?", yes=yes
            )
            request.dry_run = False
            last = _of_all(broker.shards, broker.dead_letters.DropDeadLetters, request, "dropped")
        others = _others(broker, group, last, wanted)
    done = "would be dropped" if dry_run else "dropped"
    _finish(broker.shards, last, wanted, as_json, done, others)


def _require_one_place(shards: Shards, wanted: dict[str, Any]) -> None:
    """Refuse offsets where each shard has letters of its own under them."""
    if wanted["offsets"] and shards.several:
        raise RefusedError("each shard has a letter of this offset: say in which with --shard N")


def _of_all(
    shards: Shards, method: Method[dead_pb2.DeadLetterProgress], request: Any, verb: str
) -> dead_pb2.DeadLetterProgress:
    """Run a job in one shard after the other; what they did together.

    Raises:
        CommandError: one did not answer; what the others did is told. Or it was interrupted.
    """
    total = dead_pb2.DeadLetterProgress(done=True)
    total.status.code = definition_pb2.OK
    changed = 0  # also by those that broke off

    def run(broker: Connection) -> None:
        nonlocal changed
        own = type(request)()
        own.CopyFrom(request)
        if request.max_count:
            if changed >= request.max_count:
                return
            own.max_count = request.max_count - changed
        last = dead_pb2.DeadLetterProgress()
        try:
            _follow(broker.stream(method, own), verb, last)
        finally:
            changed += last.changed_count
        total.scanned_count += last.scanned_count
        total.changed_count += last.changed_count
        total.failed_count += last.failed_count
        total.last_error = last.last_error or total.last_error

    try:
        shards.each(run)
    except KeyboardInterrupt:  # not in `run`: the next shard would be asked
        raise CommandError(f"interrupted; {changed:,} {verb} until then") from None
    return total


def _choice(everything: bool, wanted: dict[str, Any]) -> None:
    if not everything and not any(wanted.values()):
        raise click.UsageError("say which: --id, --offset, --signature, …, or --all")


def _follow(
    stream: Iterable[dead_pb2.DeadLetterProgress], verb: str, last: dead_pb2.DeadLetterProgress
) -> None:
    """Keep each progress in `last`, and show it on a terminal, until the job is done."""
    live = stderr_is_terminal()
    shown = False
    try:
        for progress in stream:
            check_status(progress)
            last.CopyFrom(progress)
            if live and not last.done:
                failed = f", {last.failed_count:,} failed" if last.failed_count else ""
                click.echo(f"\r\x1b[K{last.changed_count:,} {verb}{failed} …", nl=False, err=True)
                shown = True
    except CommandError as error:  # what was done stays done; of the last second it was not told
        changed = last.changed_count
        raise error.after(f"{changed:,} {verb} at least") if changed else error from None
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)
    if not last.done:
        words = f"the broker ended the job before it was done; {last.changed_count:,} {verb}"
        raise CommandError(f"{words} until then")


def _others(
    broker: Connection, group: str, last: dead_pb2.DeadLetterProgress, wanted: dict[str, Any]
) -> dict[str, int] | None:
    """Count the classes there are, where a job found nothing of the one that was asked for."""
    if last.changed_count or last.failed_count:
        return None
    return classes_there(broker, group, wanted["failure_class"])


def _finish(
    shards: Shards,
    last: dead_pb2.DeadLetterProgress,
    wanted: dict[str, Any],
    as_json: bool,
    done: str,
    others: dict[str, int] | None,
) -> None:
    named = wanted["ids"] or wanted["offsets"]
    if named and not last.changed_count and not last.failed_count and not shards.silent():
        raise NotThereError("no dead letter is called that; `latermq dead list` names them")
    if as_json:
        print_json({**jsonable(last), **class_fields(others)})
    elif last.changed_count or not last.failed_count:
        click.echo(f"{counted(last.changed_count, 'dead letter')} {done}{class_words(others)}")
    if last.failed_count:
        # Of those that were named none went: as long as it is asked like this, none will.
        kind = RefusedError if named and not last.changed_count else CommandError
        failed = counted(last.failed_count, "letter")
        raise kind(f"{failed} failed; the last: {last.last_error or 'no reason given'}")
    shards.finish()
