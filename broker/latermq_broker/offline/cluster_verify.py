"""`latermq cluster verify`: a copy of a replicated log beside that log, and mended from it."""

import asyncio
import os
from pathlib import Path
from typing import Final

import click

from latermq_broker.config.config import Config
from latermq_broker.config.toml_file import load
from latermq_broker.errors import ConfigError, StoreError
from latermq_broker.offline.log_commands import directory, store_errors
from latermq_broker.replication.note import Note, read_note
from latermq_broker.replication.on_kafka import log_on_kafka
from latermq_broker.replication.verifying import Verified, Verifying
from latermq_broker.store.files import RealFiles
from latermq_cli.connection.options import example, json_option
from latermq_cli.terminal.console import counted, print_json
from latermq_cli.terminal.failures import CommandError, RefusedError
from latermq_cli.terminal.table import plain

SHOWN_MAX: Final = 20  # differences, for people


@click.command(
    epilog=example(
        "latermq cluster verify ./data --config latermq.toml",
        "latermq cluster verify ./data --config latermq.toml --repair",
    )
)
@directory
@click.option("--config", "file", metavar="FILE", help="The broker's: its [replication] counts.")
@click.option("--repair", is_flag=True, help="Put the replicated log's bytes where others are.")
@json_option
def verify(directory: Path, file: str | None, repair: bool, as_json: bool) -> None:
    """Compare the copy of a replicated log in DIR with that log, byte for byte.

    Exits 1 when they differ and nothing was repaired. All that DIR has durably is compared, as far
    as the replicated log still has it: works offline and beside the broker that serves DIR, and so
    does --repair, which loses nothing: what is put back is what a quorum acknowledged. A broker
    that refused to start because of the damage starts afterwards.
    """
    try:
        config = load(None if file is None else Path(file), os.environ, {})
        note = _note(directory, config)
        done = asyncio.run(_verified(directory, config, note, repair=repair))
    except ConfigError as refusal:
        raise RefusedError(str(refusal)) from None
    except (StoreError, OSError) as error:
        raise CommandError(str(error)) from None
    mended = repair and bool(done.differences)
    if as_json:
        print_json(
            {
                "ok": mended or not done.differences,
                "repaired": mended,
                "cluster": note.cluster,
                "shard": note.shard,
                **done._asdict(),
                "differences": [each._asdict() for each in done.differences],
            }
        )
    else:
        _print(directory, note, done, repaired=repair)
    if done.differences and not repair:
        raise CommandError(
            f"{plain(str(directory))} differs from the replicated log in "
            f"{counted(len(done.differences), 'place')}; --repair mends it"
        )


async def _verified(directory: Path, config: Config, note: Note, *, repair: bool) -> Verified:
    replicated_log = log_on_kafka(config, note.shard, make_topics=False)
    try:
        return await Verifying(directory, RealFiles(), note, repair=repair).run(replicated_log)
    finally:
        await replicated_log.close()


def _note(directory: Path, config: Config) -> Note:
    """Read what the directory says of itself. Raises RefusedError: it is no copy of this log."""
    with store_errors():
        note = read_note(RealFiles(), directory)
    where = plain(str(directory))
    if note is None:
        raise RefusedError(f"{where} is no copy of a replicated log; see `latermq log verify`")
    if not config.replication.kafka:
        raise RefusedError("no replicated log is named: --config FILE with [replication] kafka")
    if note.cluster != config.replication.cluster:
        raise RefusedError(
            f"{where} is of the cluster {plain(note.cluster)!r}, not of "
            f"{config.replication.cluster!r}"
        )
    return note


def _print(directory: Path, note: Note, done: Verified, *, repaired: bool) -> None:
    click.echo(
        f"log in {plain(str(directory))}: shard {note.shard} of {note.cluster}, positions "
        f"{done.start} to {done.end} beside {counted(done.entries, 'entry', 'entries')}"
    )
    for each in done.differences[:SHOWN_MAX]:
        length = counted(each.end - each.position, "byte")
        click.echo(f"  differs      position {each.position} to {each.end}, within {length}")
    if len(done.differences) > SHOWN_MAX:
        click.echo(f"  and {counted(len(done.differences) - SHOWN_MAX, 'place')} more")
    verdict = (
        "as the replicated log has it"
        if not done.differences
        else "REPAIRED"
        if repaired
        else "DIFFERS"
    )
    click.echo(f"  verdict      {verdict}")
