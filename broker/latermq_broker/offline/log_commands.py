"""`latermq log`: read, check and repair a data directory without a broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

from latermq_broker.clock import SystemClock
from latermq_broker.errors import CorruptRecordError, StoreError, UnreplayableError
from latermq_broker.store.files import RealFiles
from latermq_broker.store.offline.inspect import (
    Damage,
    VerifyReport,
    examine_directory,
    scan_directory,
)
from latermq_broker.store.records.kind import Names
from latermq_broker.store.records.kinds import check_content, text_of
from latermq_broker.store.records.record import Record, RecordType
from latermq_cli.connection.options import example, json_option
from latermq_cli.terminal.commands import CommandGroup, Lazy
from latermq_cli.terminal.console import counted, print_json
from latermq_cli.terminal.failures import CommandError, RefusedError
from latermq_cli.terminal.table import plain
from latermq_cli.terminal.times import format_instant

_TYPES: Final = tuple(each.name.lower() for each in RecordType)
_TIMES: Final = ("due_at_ms", "was_due_at_ms", "given_up_at_ms")


def _data_directory(text: str) -> Path:
    if not text:  # perhaps of a variable that is not set: not the working directory
        raise click.BadParameter("the name of a directory is empty")
    return Path(text)


directory: Final = click.argument("directory", metavar="DIR", type=_data_directory)


@click.group(
    cls=CommandGroup,
    lazy={
        "repair": Lazy(
            "latermq_broker.offline.log_repair",
            "repair",
            "Give up what is damaged, and keep a copy.",
        )
    },
)
def log() -> None:
    """Read, check or repair a broker's data directory, offline.

    dump and verify work beside a running broker too and write nothing.
    """


@log.command(
    epilog=example(
        "latermq log dump ./data",
        "latermq log dump ./data --type dead --type attempt",
        "latermq log dump ./data --from 81920 --limit 20 --json",
    )
)
@directory
@click.option(
    "--from", "start", type=click.IntRange(min=0), default=0, metavar="POS",
    help="Begin with the first record at or after this position.",
)  # fmt: skip
@click.option(
    "--type", "types", type=click.Choice(_TYPES, case_sensitive=False), multiple=True,
    metavar="TYPE", help="Only records of this type, e.g. message, attempt, dead. Repeatable.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@json_option
def dump(
    directory: Path, start: int, types: tuple[str, ...], limit: int | None, as_json: bool
) -> None:
    """Print the records of the log in DIR, one line each, oldest first."""
    wanted = frozenset(types)
    names = Names()
    printed = unreadable = 0
    with store_errors():
        for record in scan_directory(directory, RealFiles(), start):
            wrong, fields = _described(record, names)
            unreadable += wrong
            if wanted and record.type.name.lower() not in wanted:
                continue
            if as_json:
                print_json({**record_header(record), **fields})
            else:
                click.echo(_line(record, fields))
            printed += 1
            if printed == limit:
                break
    if not printed and not as_json:
        click.echo("no such records", err=True)
    if unreadable:
        records = counted(unreadable, "record")
        raise CommandError(f"{records} in {directory} cannot be what a broker wrote")


def _described(record: Record, names: Names) -> tuple[bool, dict[str, Any]]:
    """Describe a record's content; True: it cannot be what a broker wrote."""
    try:
        return False, text_of(record, names)
    except UnreplayableError as error:
        return True, {"wrong": error.reason}


@log.command(epilog=example("latermq log verify ./data"))
@directory
@json_option
def verify(directory: Path, as_json: bool) -> None:
    """Check every record of the log in DIR against its checksum, and the checkpoints.

    Then a broker is started on it as a trial, in which nothing is written. Exits 1 when something
    that was durable once is damaged, when no broker starts on it, or when a repair did not come to
    its end. What a crash left half-written at the end is no damage: nobody was told it was stored,
    and the next start cuts it off.
    """
    from latermq_broker.offline.mending.closing import Ending  # the engine with it
    from latermq_broker.offline.trial_start import first_unreplayable

    ending = Ending()

    def look(record: Record) -> None:
        check_content(record)
        ending.look(record)

    with store_errors():
        report = examine_directory(directory, RealFiles(), look).report
    if report.ok and not ending.open:
        refusal = first_unreplayable(directory, RealFiles(), SystemClock().now_ms())
        if refusal is not None:
            report = replace(report, damages=(Damage(refusal.position, refusal.reason, 0),))
    if as_json:
        print_json(_jsonable(report))
    else:
        for line in _report_lines(directory, report):
            click.echo(line)
    if not report.ok:
        places = counted(len(report.damages), "damaged place")
        raise CommandError(
            f"{places} in {directory}; restore a backup, or see `latermq log repair --help`"
        )
    if ending.open:
        raise CommandError(unclosed(directory))


def unclosed(directory: Path) -> str:
    """Say that a repair did not come to its end, and how it does."""
    where = plain(str(directory))
    return (
        f"log in {where}: records were given up, and nothing behind them says from what a broker "
        f"goes on: run `latermq log repair --skip {where} --yes`"
    )


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn a store's own errors into a command's."""
    try:
        yield
    except CorruptRecordError as damage:
        raise CommandError(str(damage)) from None
    except StoreError as error:
        raise RefusedError(str(error)) from None


def record_header(record: Record) -> dict[str, Any]:
    return {
        "position": record.position,
        "type": record.type.name.lower(),
        "bytes": record.length,
        "stored_at_ms": record.store_ms,
        "epoch": record.epoch,
        "more": record.more,
    }


def _line(record: Record, fields: dict[str, Any]) -> str:
    when = format_instant(record.store_ms, millis=True)
    # "+": the next record belongs to the same atomic group
    head = f"{record.position:>12}{'+' if record.more else ' '} {when}  {record.type.name:<11}"
    return f"{head} {record.length:>7} B  {plain(words_of(fields))}".rstrip()


def words_of(fields: dict[str, Any]) -> str:
    """Write `name=value` of each field."""
    return " ".join(f"{name}={_value(name, value)}" for name, value in fields.items())


def _value(name: str, value: Any) -> str:
    if name in _TIMES:
        return format_instant(value, millis=True).replace(" ", "T")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _several(value)
    return repr(value) if isinstance(value, str) and (" " in value or not value) else str(value)


def _several(values: list[Any]) -> str:
    """Write `7..12` for a run of numbers, else the values with commas, at most 16 of them."""
    if len(values) > 2 and all(isinstance(value, int) for value in values):
        first = values[0]
        if values == list(range(first, first + len(values))):
            return f"{first}..{values[-1]}"
    shown = ",".join(str(value) for value in values[:16])
    return f"{shown},…({len(values)})" if len(values) > 16 else shown


def _jsonable(report: VerifyReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "start": report.start,
        "end": report.end,
        "clean": report.clean,
        "torn_bytes": report.torn_bytes,
        "records": {kind.name.lower(): count for kind, count in report.records.items()},
        "segments": [asdict(segment) for segment in report.segments],
        "checkpoints": [asdict(checkpoint) for checkpoint in report.checkpoints],
        "damages": [asdict(damage) for damage in report.damages],
    }


def _report_lines(directory: Path, report: VerifyReport) -> Iterator[str]:
    records = sum(report.records.values())
    segments = counted(len(report.segments), "segment")
    where = plain(str(directory))
    yield f"log in {where}: positions {report.start} to {report.end}, {segments}"
    kinds = ", ".join(f"{count:,} {kind.name.lower()}" for kind, count in report.records.items())
    yield f"  records      {records:,}: {kinds}" if records else "  records      none"
    for checkpoint in report.checkpoints:
        state = checkpoint.problem or f"good, replay starts at {checkpoint.position}"
        yield f"  checkpoint   {checkpoint.name}: {state}"
    if not report.checkpoints:
        yield "  checkpoint   none yet; a start replays the whole log"
    yield f"  last stop    {_last_stop(report)}"
    for damage in report.damages:
        yield f"  damage       {_damage(damage)}"
    yield "  verdict      " + ("sound" if report.ok else "DAMAGED")


def _last_stop(report: VerifyReport) -> str:
    if report.clean:
        return "in order"
    if report.torn_bytes:
        torn = counted(report.torn_bytes, "byte")
        after = "which a start removes"
        if report.damages:
            after = "which a start leaves alone should it stop at the damage"
        return f"a crash, or still running; {torn} of an unfinished write, {after}"
    return "a crash, or still running; nothing was half-written"


def _damage(damage: Damage) -> str:
    after = f"; good again from {damage.resumes_at}" if damage.resumes_at else ""
    return f"at position {damage.position}: {plain(damage.reason)}{after}"
