"""`latermq backup DIR`: copy the log of a running broker; list what was copied."""

from dataclasses import asdict
from typing import Any, Final

import click

from latermq_cli.backup.manifest import Manifest
from latermq_cli.backup.repository import SHARD, Repository, repositories
from latermq_cli.backup.shelf import shelf_of
from latermq_cli.backup.taking import Backup, Done
from latermq_cli.broker import size
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example, json_option
from latermq_cli.terminal.commands import CommandGroup, Lazy
from latermq_cli.terminal.console import counted, print_json, print_table, stderr_is_terminal
from latermq_cli.terminal.failures import CommandError, NotThereError
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.termination import orderly_termination
from latermq_cli.terminal.times import format_instant

_OFFLINE: Final = "latermq_broker.offline.backup_commands"  # by name: nothing here imports it
_MIB: Final = 1 << 20
_COLUMNS: Final = (
    Column("NAME"),
    Column("TAKEN"),
    Column("LOG", right=True),
    Column("FROM", right=True),
    Column("UP TO", right=True),
    Column("VERSION"),
)


class _BackupGroup(CommandGroup):
    """`latermq backup DIR` is `latermq backup take DIR`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.list_commands(ctx), "--help"}:
            args = ["take", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_BackupGroup,
    lazy={"verify": Lazy(_OFFLINE, "verify", "Read a backup, every record of it.")},
    epilog=example(
        "latermq backup /mnt/backups",
        "latermq backup s3://bucket/latermq --keep 14",
        "latermq backup list /mnt/backups",
        "latermq backup verify /mnt/backups",
        "latermq restore /mnt/backups /var/lib/latermq-restored",
    ),
)
def backup() -> None:
    """Back up a broker that runs, to a directory or a bucket.

    `latermq backup DIR` is short for `latermq backup take DIR`. `latermq restore` makes a data
    directory of a backup.
    """


@backup.command(
    epilog=example("latermq backup take /mnt/backups", "latermq backup take /mnt/b --keep 7")
)
@click.argument("place", metavar="DIR")
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N",
    help="Delete all but the newest N backups afterwards.",
)  # fmt: skip
@click.option(
    "--rate", type=click.IntRange(1, 1_024), default=20, show_default=True, metavar="MIB",
    help="Copy at most so many MiB a second.",
)  # fmt: skip
@click.option(
    "--through-broker", is_flag=True,
    help="Have the broker send its log, though its files could be read here.",
)  # fmt: skip
@broker_options
def take(
    place: str, keep: int | None, rate: int, through_broker: bool, endpoint: str, as_json: bool
) -> None:
    """Copy the log of the broker into DIR, where it continues earlier backups.

    Everything that the broker had acknowledged when this began is in it. DIR is a directory, or a
    URL that fsspec knows, such as s3://bucket/latermq. What is there already is not copied again; a
    backup that was cut off goes on. Of a cluster each shard has a folder in DIR.
    """
    shelf = shelf_of(place)
    progress = _Progress(shown=stderr_is_terminal() and not as_json)
    with orderly_termination(), Connection(endpoint) as connection:
        shards = connection.shards

        def copy(each: Any) -> Done:
            own = shelf.below(f"{SHARD}{shards.number(each)}") if shards.several else shelf
            repository = Repository(own)
            repository.check_place()
            work = Backup(
                each,
                repository,
                rate * _MIB,
                through_broker=through_broker,
                on_progress=progress.show,
            )
            with own.locked():
                return work.take(keep)

        parts = shards.each(copy)
        progress.end()
        for number, done in parts:
            if as_json:
                print_json(({"shard": number} if shards.several else {}) | _done_fields(done))
            else:
                click.echo(f"shard {number}: " * shards.several + _done_words(done, shelf.place))
        shards.finish()


@backup.command("list", epilog=example("latermq backup list /mnt/backups"))
@click.argument("place", metavar="DIR")
@json_option
def list_(place: str, as_json: bool) -> None:
    """List the backups in DIR, the oldest first."""
    manifests: list[tuple[str, Manifest]] = []
    damaged: list[str] = []
    shelf = shelf_of(place)
    for shard, repository in repositories(shelf):
        for name in repository.names():
            try:
                manifests.append((shard, repository.manifest(name)))
            except CommandError as error:  # there are others to restore
                damaged.append(error.message)
    if not manifests and not damaged:
        raise NotThereError(f"there is no backup in {shelf.place}")
    several = any(shard for shard, _ in manifests)
    if as_json:
        shown = [
            ({"shard": shard} if several else {}) | manifest_fields(each)
            for shard, each in manifests
        ]
        print_json({"backups": shown})
    else:
        rows = [(shard, *_row(each)) if several else _row(each) for shard, each in manifests]
        print_table((Column("SHARD"), *_COLUMNS) if several else _COLUMNS, rows)
    if damaged:
        raise CommandError("; ".join(damaged))


def manifest_fields(manifest: Manifest) -> dict[str, Any]:
    """Tell of a backup what people and programs ask."""
    fields = asdict(manifest)
    del fields["pieces"], fields["repairs"], fields["newest"]
    return fields | {"start": manifest.segments[0][0], "pieces": len(manifest.pieces)}


def _row(manifest: Manifest) -> tuple[str, ...]:
    return (
        manifest.name,
        format_instant(manifest.taken_at_ms),
        size(manifest.log_bytes),
        str(manifest.segments[0][0]),
        str(manifest.position),
        plain(manifest.version),
    )


def _done_fields(done: Done) -> dict[str, Any]:
    return manifest_fields(done.manifest) | {
        "copied_bytes": done.copied_bytes,
        "pieces_deleted": done.swept,
        "through": done.through,
    }


def _done_words(done: Done, place: str) -> str:
    manifest = done.manifest
    swept = f"; {counted(done.swept, 'piece')} deleted that no backup needs" if done.swept else ""
    return (
        f"backup {manifest.name} in {plain(place)}: {size(manifest.log_bytes)} of log, "
        f"{size(done.copied_bytes)} of it new, read again and whole{swept}"
    )


class _Progress:
    """A line on the terminal that is written over."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._written = False

    def show(self, there: int, whole: int) -> None:
        if self._shown:
            click.echo(f"\r{size(there)} of {size(whole)}        ", nl=False, err=True)
            self._written = True

    def end(self) -> None:
        if self._written:
            click.echo(err=True)
