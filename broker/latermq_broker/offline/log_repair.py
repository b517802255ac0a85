"""`latermq log repair`: makes a damaged data directory usable again, on record and with copies."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.config.toml_file import load
from latermq_broker.errors import ConfigError, UnreplayableError
from latermq_broker.offline.log_commands import (
    directory,
    record_header,
    store_errors,
    unclosed,
    words_of,
)
from latermq_broker.offline.mending.closing import Ending
from latermq_broker.offline.mending.refusals import closed_log, planned
from latermq_broker.store.directory import REPLICA_NAME, has_file
from latermq_broker.store.files import RealFiles
from latermq_broker.store.offline.repair import Loss, Repaired, repair_directory
from latermq_broker.store.records.kind import Names
from latermq_broker.store.records.kinds import check_content, text_of
from latermq_broker.store.records.record import Record, RecordType
from latermq_cli.connection.options import example, json_option
from latermq_cli.terminal.console import counted, print_json
from latermq_cli.terminal.failures import RefusedError
from latermq_cli.terminal.table import plain

SHOWN_MAX = 20  # records of one range, for people; the report in lost/ has them all


@click.command(
    epilog=example(
        "latermq log repair --skip ./data",
        "latermq log repair --skip ./data --yes",
    )
)
@directory
@click.option("--skip", is_flag=True, help="Give up what cannot be read. There is no other way.")
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be done.")
@json_option
def repair(directory: Path, skip: bool, yes: bool, as_json: bool) -> None:
    """Have a broker start on DIR though its log is damaged (exit code 3 of `serve`).

    Restore a backup if you have one. Otherwise this gives up each range that cannot be read, puts a
    LOST record in its place and leaves everything else as it is. What was there, as it was found,
    and a report of what is known of it are kept in DIR/lost. At its end the log says from then on
    from what a broker goes on.
    """
    if not skip:
        raise RefusedError(
            "say --skip to give up what cannot be read; restoring a backup loses less"
        )
    with store_errors():
        is_replica = has_file(directory, REPLICA_NAME)
    if is_replica:
        raise RefusedError(
            f"{plain(str(directory))} is a copy of a replicated log: `latermq cluster verify "
            "--repair` puts back what is damaged; or empty it, and its broker fills it again from "
            "the replicated log; nothing was changed"
        )
    files, names, ending, config = RealFiles(), Names(), Ending(), _config()

    def look(record: Record) -> None:
        check_content(record)
        ending.look(record)
        if record.type in (RecordType.CONFIG, RecordType.CLIENT):
            text_of(record, names)

    def describe(record: Record) -> dict[str, Any]:
        return {**record_header(record), **_described(names, record)}

    now_ms = SystemClock().now_ms()
    given_up: Sequence[UnreplayableError] = ()
    with store_errors():
        done, refused = planned(directory, files, look, now_ms)
        wanted = bool(done.losses) or ending.open
        if yes and done.losses:
            done = repair_directory(directory, files, now_ms, describe, check_content, refused)
        if yes and wanted:
            more, given_up = closed_log(directory, files, config, now_ms, describe)
            done = _joined(done, more)
    if as_json:
        losses = [
            _jsonable(loss, [describe(record) for record in loss.records]) for loss in done.losses
        ]
        print_json(
            {
                "repaired": yes and wanted,
                "losses": losses,
                "copies": [str(path) for path in done.copies],
                "reports": [str(path) for path in done.reports],
                "passed_over": [error.position for error in given_up],
            }
        )
        return
    if wanted and not done.losses:
        where = plain(str(directory))
        done_line = f"log in {where}: says now from what a broker goes on behind what was given up"
        click.echo(done_line if yes else unclosed(directory))
        return
    for line in _lines(directory, done, names):
        click.echo(line)
    for error in given_up:
        click.echo(f"  passed over  {plain(str(error))}")


def _joined(done: Repaired, more: Repaired) -> Repaired:
    return Repaired(
        (*done.losses, *more.losses), (*done.copies, *more.copies), (*done.reports, *more.reports)
    )


def _config() -> Config:
    """Load what the environment tells a broker; a directory of any kind may be mended."""
    try:
        return load(None, os.environ, {"store.allow_network_files": True})
    except ConfigError as error:
        raise RefusedError(str(error)) from error


def _described(names: Names, record: Record) -> dict[str, Any]:
    """Tell what a damaged record says, as far as it makes sense."""
    with suppress(UnreplayableError):
        return text_of(record, names)
    return {}


def _jsonable(loss: Loss, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "position": loss.position,
        "end": loss.end,
        "bytes": loss.length,
        "reason": loss.reason,
        "segments": list(loss.segments),
        "records": records,
    }


def _lines(directory: Path, done: Repaired, names: Names) -> Iterator[str]:
    where = plain(str(directory))
    if not done.losses:
        yield f"log in {where}: sound, there is nothing to repair"
        return
    yield f"log in {where}: {counted(len(done.losses), 'damaged range')}"
    for loss in done.losses:
        size = counted(loss.length, "byte")
        yield f"  position {loss.position} to {loss.end}, {size}: {plain(loss.reason)}"
        for record in loss.records[:SHOWN_MAX]:
            text = plain(words_of(_described(names, record)))
            yield f"    seems to have held {record.type.name} at {record.position} {text}".rstrip()
        if len(loss.records) > SHOWN_MAX:
            yield f"    and {counted(len(loss.records) - SHOWN_MAX, 'record')} more"
        if not loss.records:
            yield "    nothing in it can be made out"
    if not done.reports:
        yield f"nothing was changed: `latermq log repair --skip {where} --yes` gives this up"
        return
    for path in (*done.reports, *done.copies):
        yield f"  kept         {plain(str(path))}"
    yield "  verdict      sound, without the above; a broker starts on it"
