"""`latermq cluster adopt`: the log of a broker that was alone becomes a replicated one."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from latermq_broker.cluster.mark import require_shard
from latermq_broker.cluster.placement import home_by_name
from latermq_broker.config.config import Config
from latermq_broker.config.toml_file import load
from latermq_broker.errors import (
    ConfigError,
    StoreError,
    StoreLockedError,
    StoreUnusableError,
    UnsupportedFormatError,
)
from latermq_broker.offline.adopting import Adopting, OwnLog, keep_note
from latermq_broker.offline.log_commands import directory
from latermq_broker.replication.note import Note
from latermq_broker.replication.on_kafka import log_on_kafka
from latermq_broker.store.directory import (
    LOG_NAME,
    REPLICA_NAME,
    has_file,
    refuse_shard,
    require_local,
    take_lock,
)
from latermq_broker.store.files import RealFiles
from latermq_cli.connection.options import example, json_option
from latermq_cli.terminal.console import counted, print_json
from latermq_cli.terminal.failures import CommandError, NotThereError, RefusedError
from latermq_cli.terminal.table import plain

TOLD_BYTES: Final = 64 << 20  # between two lines that tell how far it is
REFUSALS: Final = (ConfigError, StoreLockedError, StoreUnusableError, UnsupportedFormatError)


@click.command(epilog=example("latermq cluster adopt ./data --config latermq.toml"))
@directory
@click.option("--config", "file", metavar="FILE", help="The broker's, with its [replication].")
@json_option
def adopt(directory: Path, file: str | None, as_json: bool) -> None:
    """Make the log in DIR, of a broker that was alone and is stopped, a replicated one.

    All of it is shipped into the replicated log, which must be empty, and read back; only then DIR
    is noted as the last owner's, and its broker serves when it is started with [replication].
    Start no broker of this cluster before. If this is interrupted DIR is as it was; once more, and
    it goes on where it stopped. Exits 3 when DIR holds no log.
    """
    try:
        config = load(None if file is None else Path(file), os.environ, {})
        note, own = _adopted(directory, config)
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from None
    except (StoreError, OSError) as error:
        raise CommandError(f"{error}. Nothing of {plain(str(directory))} was changed") from None
    facts = {"cluster": note.cluster, "shard": note.shard, "start": own.start, "end": own.end}
    if as_json:
        print_json({**facts, "entries": note.offset})
    else:
        click.echo(
            f"log in {plain(str(directory))}: shard {note.shard} of {note.cluster}, positions "
            f"{own.start} to {own.end} in {note.offset:,} entries\n"
            "  verdict      as the replicated log has it: start its broker with [replication]"
        )


def _adopted(directory: Path, config: Config) -> tuple[Note, OwnLog]:
    """Take the directory, and have the replicated log hold what it holds."""
    files = RealFiles()
    if not has_file(directory, LOG_NAME):
        raise NotThereError(f"{plain(str(directory))} holds no log")
    new = _note(directory, config)
    require_local(files, directory, config.store)
    lock_fd = take_lock(files, directory)
    try:
        own = OwnLog(directory, files)
        note = asyncio.run(_shipped(own, new, config))
        keep_note(directory, files, own, note)
    finally:
        files.close(lock_fd)
    return note, own


def _note(directory: Path, config: Config) -> Note:
    """Say which log it is to be. Raises RefusedError, StoreUnusableError: it cannot be."""
    if not config.replication.kafka:
        raise RefusedError("no replicated log is named: --config FILE with [replication] kafka")
    if has_file(directory, REPLICA_NAME):
        raise RefusedError(
            f"{plain(str(directory))} is a copy of a replicated log; see `latermq cluster verify`"
        )
    shards = config.cluster.shards
    if config.cluster.machines and not shards:
        raise RefusedError("cluster.shards and cluster.shard must say which shard it is to be")
    if shards:
        _require_places(directory, config.cluster.shard, len(shards))
    else:
        refuse_shard(directory)
    return Note(config.replication.cluster, config.cluster.shard)


def _require_places(directory: Path, shard: int, shards: int) -> None:
    """Check that whoever owns the log finds its topics by their names: the mark stays here.

    Raises RefusedError, StoreUnusableError.
    """
    mark = require_shard(directory, shard, shards)
    if mark is None:
        raise RefusedError(
            f"{plain(str(directory))} is of a broker that was alone, and would be shard {shard} of "
            f"{shards}: start it as that without [replication] first, which says what is where"
        )
    pinned = [topic for topic, home in mark.pins.items() if home_by_name(topic, shards) != home]
    if pinned:
        raise RefusedError(
            f"topic {plain(min(pinned))} is pinned to shard {mark.pins[min(pinned)]} in the file "
            f"SHARD of {plain(str(directory))}, which other machines would not have: they would "
            f"look for it at shard {home_by_name(min(pinned), shards)}"
        )


async def _shipped(own: OwnLog, new: Note, config: Config) -> Note:
    replicated_log = log_on_kafka(config, new.shard, make_topics=True)
    try:
        return await Adopting(own, new, replicated_log, _teller(own)).run()
    finally:
        await replicated_log.close()


def _teller(own: OwnLog) -> Callable[[int], None]:
    """Make what tells on stderr how far it is, now and then and in the end."""
    last = own.start

    def tell(position: int) -> None:
        nonlocal last
        if position - last >= TOLD_BYTES or position == own.end:
            last = position
            whole = counted(own.end - own.start, "byte")
            click.echo(f"shipped {position - own.start:,} of {whole}", err=True)

    return tell
