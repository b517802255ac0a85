"""`latermq cluster`: the shards of a cluster, who serves each, how its log is kept, and by whom."""

from collections.abc import Iterator
from typing import Any, Final

import click

from latermq_cli.broker import size
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example
from latermq_cli.terminal.commands import CommandGroup, Lazy
from latermq_cli.terminal.console import counted, print_json, print_table
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.durations import format_duration

ALONE: Final = "alone"
OWNER: Final = "owner"
COLUMNS: Final = (
    Column("SHARD", right=True),
    Column("ROLE"),
    Column("BROKER", flex=True),
    Column("EPOCH", right=True),
    Column("POSITION", right=True),
    Column("LAG", right=True),
    Column("VERSION", optional=True),
    Column("HEARD OF"),
    Column("LOG ANSWERED"),
)


STANDBY_COLUMNS: Final = (
    Column("SHARD", right=True),
    Column("STANDBY", flex=True),
    Column("READY"),
    Column("BEHIND", right=True),
    Column("FOR", right=True),
    Column("UNREAD", right=True),
    Column("POSITION", right=True),
    Column("CHECKPOINT", right=True),
    Column("HEARD OF"),
    Column("VERSION", optional=True),
)


@click.group(
    cls=CommandGroup,
    lazy={
        "adopt": Lazy(
            "latermq_broker.offline.cluster_adopt",
            "adopt",
            "Make a stopped broker's own log a replicated one.",
        ),
        "verify": Lazy(
            "latermq_broker.offline.cluster_verify",
            "verify",
            "Compare a directory's log with the replicated log; mend it.",
        ),
    },
)
def cluster() -> None:
    """See the shards of a cluster and their standbys; make a log a replicated one, hand it over,
    compare a copy."""


@cluster.command(epilog=example("latermq cluster show", "latermq cluster show --json"))
@watch_option
@broker_options
def show(endpoint: str, as_json: bool) -> None:
    """Show each shard: who serves it, its log's end, and what of it no quorum has yet; and who
    stands by for it, as the owner heard of them.

    A shard without a replicated log is alone. Who stands by answers no calls: it says every few
    seconds how far it is, and is shown as silent when it has not for 15 s, for an hour. If a shard
    does not answer, the others are shown and the exit code is 1.
    """
    with Connection(endpoint) as connection:
        shards, request = connection.shards, broker_pb2.GetBrokerRequest()
        rows = [
            _row(number, address, state)
            for number, (address, state) in shards.each(
                lambda each: (each.endpoint, each.call(each.brokers.GetBroker, request).broker)
            )
        ]
    if as_json:
        print_json({"shards": rows})
    else:
        print_table(COLUMNS, [cells for row in rows for cells in _lines(row)])
    shards.finish()


@cluster.command(epilog=example("latermq cluster standby", "latermq cluster standby --json"))
@watch_option
@broker_options
def standby(endpoint: str, as_json: bool) -> None:
    """Show who stands by for each shard: whether it is ready, and how far behind.

    Ready is who could take over as it is: it has an engine and all of the log, and its disk keeps
    up. What it is behind in bytes and time is by the owner's log, when it was heard of; where its
    newest checkpoint is, a start of it would begin to replay. Of a version that does not say it,
    "-" is shown. A shard for which nobody stands by has a line that says so. If a shard does not
    answer, the others are shown and the exit code is 1.
    """
    with Connection(endpoint) as connection:
        shards, request = connection.shards, broker_pb2.GetBrokerRequest()
        rows = [
            _standbys(_row(number, address, state))
            for number, (address, state) in shards.each(
                lambda each: (each.endpoint, each.call(each.brokers.GetBroker, request).broker)
            )
        ]
    if as_json:
        print_json({"shards": rows})
    else:
        print_table(STANDBY_COLUMNS, [cells for row in rows for cells in _standby_lines(row)])
    shards.finish()


@cluster.command(
    "hand-over", epilog=example("latermq cluster hand-over", "latermq cluster hand-over --json")
)
@broker_options
def hand_over(endpoint: str, as_json: bool) -> None:
    """Have the owner of a replicated log hand it over to whoever stands by for it.

    It answers what it has, has calls wait until another serves, closes its port and stands by
    itself. If none does it takes the log up again after 2 to 2.7 s. Only the
    owner answers, so name all addresses, A:8081;B:8081, if you do not know which it is. A broker
    that is stopped (SIGTERM) hands over by itself.
    """
    with Connection(endpoint) as connection:
        answer = connection.call(connection.brokers.HandOverLog, broker_pb2.HandOverLogRequest())
    if as_json:
        print_json({"cluster": answer.cluster, "epoch": answer.epoch, "owner": connection.endpoint})
    else:
        click.echo(
            f"{plain(connection.endpoint)} hands over the log of {plain(answer.cluster)}, epoch "
            f"{answer.epoch}, and stands by"
        )


def _row(number: int, address: str, state: Any) -> dict[str, Any]:
    row = {
        "shard": number,
        "role": ALONE,
        "owner": address,
        "position": state.log.end,
        "version": state.version,
    }
    if not state.HasField("replication"):
        return row
    seen = state.replication
    return row | {
        "role": seen.role,
        "owner": seen.address or address,
        "cluster": seen.cluster,
        "epoch": seen.epoch,
        "position": seen.position,
        "lag_bytes": seen.lag_bytes,
        "engine_answered_ms_ago": seen.silence_ms,
        "members": [jsonable(member) for member in seen.members],
    }


def _lines(row: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a shard's line, and one for each broker that stands by or fell silent."""
    shard, version = str(row["shard"]), plain(row["version"])
    head, position = (shard, plain(row["role"]), plain(row["owner"])), str(row["position"])
    if row["role"] == ALONE:
        yield (*head, "-", position, "-", version, "-", "-")
        return
    answered = f"{format_duration(row['engine_answered_ms_ago'])} ago"
    lag = size(row["lag_bytes"])
    yield (*head, str(row["epoch"]), position, lag, version, "-", answered)
    for member in row["members"]:
        yield (
            shard,
            "silent" if member["silent"] else plain(member["role"]),
            plain(member["address"]),
            str(member["epoch"]),
            str(member["position"]),
            counted(member["lag_entries"], "entry", "entries"),
            plain(member["version"]),
            f"{format_duration(member['heard_ms_ago'])} ago",
            "-",
        )


def _standbys(row: dict[str, Any]) -> dict[str, Any]:
    """Keep of a shard's row what concerns those that do not own its log."""
    names = "shard", "role", "owner", "cluster", "epoch", "position"
    kept = {name: row[name] for name in names if name in row}
    members = row.get("members", [])
    return kept | {"standbys": [member for member in members if member["role"] != OWNER]}


def _standby_lines(row: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each broker that stands by for a shard; one if there is none."""
    shard = str(row["shard"])
    if not row["standbys"]:
        nobody = "no replicated log" if row["role"] == ALONE else "nobody stands by"
        yield (shard, nobody, *["-"] * (len(STANDBY_COLUMNS) - 2))
    for member in row["standbys"]:
        ready, behind_ms = member["ready"], member["behind_ms"]
        yield (
            shard,
            plain(member["address"]),
            "silent" if member["silent"] else "-" if ready is None else "yes" if ready else "no",
            "-" if member["behind_bytes"] is None else size(member["behind_bytes"]),
            "-" if behind_ms is None else format_duration(behind_ms),
            counted(member["lag_entries"], "entry", "entries"),
            str(member["position"]),
            "-" if member["checkpoint"] is None else str(member["checkpoint"]),
            f"{format_duration(member['heard_ms_ago'])} ago",
            plain(member["version"]),
        )
