"""`latermq serve`: flags → Config → runtime → exit code."""

import os
from functools import partial
from pathlib import Path
from typing import Final

import click

from latermq_broker.config.cluster import SHARDS_MAX
from latermq_broker.config.config import LOG_LEVELS, Flush, ServerConfig
from latermq_broker.config.toml_file import load, to_toml
from latermq_broker.errors import (
    ConfigError,
    FencedError,
    HandoverError,
    StoreError,
    StoreLockedError,
    StoreUnusableError,
    UnansweredError,
    UnsupportedFormatError,
)
from latermq_broker.observability import log as logs
from latermq_cli.connection.options import example
from latermq_cli.terminal.failures import CommandError, RefusedError

DEFAULTS: Final = ServerConfig()
REFUSALS: Final = (
    ConfigError, HandoverError, StoreLockedError, StoreUnusableError, UnsupportedFormatError
)  # fmt: skip


class StoreFailedError(CommandError):
    """The log is damaged or the disk failed; exit code 3."""

    exit_code = 3


class TryAgainError(CommandError):
    """Nothing of this broker is wrong, and it is to be started again; exit code 4."""

    exit_code = 4


class Announcement:
    """Prints what a broker announces, and remembers that it has: it serves, or stands by."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self, text: str) -> None:
        self.made = True
        click.echo(text)


@click.command(
    epilog=example(
        "latermq serve",
        "latermq serve --listen 0.0.0.0:8081 --data-dir /var/lib/latermq --flush sync",
        "latermq serve --data-dir /var/lib/latermq --replace",
        "latermq serve --data-dir /var/lib/latermq --shards 4",
        "latermq serve --config latermq.toml --print-config",
    )
    + "\n\n\b\nExit codes:\n"
    "  0  stopped in order (SIGTERM, SIGINT), or replaced\n"
    "  1  an unexpected failure\n"
    "  2  refused to start: flags, configuration, port or data directory; or who is replaced "
    "does not go\n"
    "  3  the store failed: damaged log, failed write or sync; or Kafka has lost what it had\n"
    "  4  with [replication]: another broker owns the log now, or Kafka did not answer at the "
    "start; start it again"
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Where to serve; port 0 picks a free one, [::]:8081 takes IPv6 and IPv4. "
    f"[default: {DEFAULTS.listen}]",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help=f"Where the data is; made when missing. [default: {DEFAULTS.data_dir}]",
)
@click.option(
    "--flush",
    type=click.Choice([flush.value for flush in Flush]),
    help="What an answer promises. none and async: it survives the process; async syncs every "
    "200 ms, none when a segment is full. sync: it survives a power loss; sync-strict: leases and "
    "attempt counts too. With [replication] Kafka's quorum has it in any case. [default: async]",
)
@click.option("--config", "file", metavar="FILE", help="A TOML file of settings.")
@click.option(
    "--auto-create/--no-auto-create",
    default=None,
    help="Make unknown topics on first use. [default: on]",
)
@click.option(
    "--auto-create-groups/--no-auto-create-groups",
    default=None,
    help="Make unknown consumer groups on first use. [default: on]",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Take over from the broker that serves the data directory, if there is one: its port "
    "stays open, its calls are answered, nobody is refused. With another --listen the old address "
    "is refused from then on; the log says so. With [replication] it hands its log over to who "
    "stands by, if it owns it, and this one stands by then.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, SHARDS_MAX),
    metavar="N",
    help="Run so many brokers behind one route, a core each: in the directories 0 to N-1 of the "
    "data directory, on N ports from --listen's on. For ever so many: the number stays.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="[default: info]")
@click.option("--log-json", is_flag=True, default=None, help="Log JSON objects instead of text.")
@click.option(
    "--print-config", is_flag=True, help="Print every setting as it would be used, and exit."
)
def serve(
    listen: str | None,
    data_dir: str | None,
    flush: str | None,
    file: str | None,
    auto_create: bool | None,
    auto_create_groups: bool | None,
    replace: bool,
    shards: int | None,
    log_level: str | None,
    log_json: bool | None,
    print_config: bool,
) -> int:
    """Run the broker.

    Prints `latermq ready on HOST:PORT` when it serves. Settings come from the defaults, then the
    file, then the environment (LATERMQ_STORE_FLUSH=sync for [store] flush), then the flags.
    """
    if not __debug__:
        raise RefusedError("python -O removes the checks that keep data safe: start without -O")
    flags = {
        "server.listen": listen,
        "server.data_dir": data_dir,
        "store.flush": flush,
        "catalog.auto_create": auto_create,
        "catalog.auto_create_groups": auto_create_groups,
        "log.level": log_level,
        "log.json": log_json,
    }
    path = None if file is None else Path(file)
    reread = partial(load, path, dict(os.environ), flags)
    announce = Announcement()
    try:
        config = reread()
        if print_config:
            click.echo(to_toml(config), nl=False)
            return 0
        if shards is not None:
            from latermq_broker.cluster import supervisor
            from latermq_broker.handover.activation import refuse_sockets

            refuse_sockets(os.environ, "--shards", "each shard binds its own port")
            words = _words(file, flush, auto_create, auto_create_groups, log_level, log_json)
            return supervisor.run(config, shards, words, announce, replace=replace)
        if config.cluster.machines and not config.cluster.shards:
            raise RefusedError("cluster.machines is for --shards, which says how many there are")
        from latermq_broker import runtime  # gRPC and the rest, only for serving

        if config.replication.kafka:
            from latermq_broker.replication.on_kafka import replica_on_kafka

            return runtime.run_replica(
                config, announce, replica_on_kafka, replace=replace, reread=reread
            )
        return runtime.run(config, announce, replace=replace, reread=reread)
    except (UnansweredError, FencedError) as error:
        raise TryAgainError(str(error)) from error
    except REFUSALS as error:
        raise RefusedError(str(error)) from error
    except StoreError as error:
        raise StoreFailedError(str(error)) from error
    except OSError as error:
        if not announce.made:  # it served nobody: files, rights or limits, which can be mended
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    finally:
        logs.flush()  # what stands in the log comes before the last word


def _words(
    file: str | None,
    flush: str | None,
    auto_create: bool | None,
    auto_create_groups: bool | None,
    log_level: str | None,
    log_json: bool | None,
) -> list[str]:
    """List the words that say the same to the `latermq serve` of one shard."""
    words: list[str] = []
    for flag, value in (("config", file), ("flush", flush), ("log-level", log_level)):
        words += [f"--{flag}", value] if value is not None else []
    for flag, chosen in (("auto-create", auto_create), ("auto-create-groups", auto_create_groups)):
        words += [f"--{flag}" if chosen else f"--no-{flag}"] if chosen is not None else []
    return [*words, "--log-json"] if log_json else words
