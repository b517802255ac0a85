"""`latermq cluster`: the shards of a cluster, who serves each, how its log is kept."""

from typing import Any, Final

import click

from latermq_cli.broker import size
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example
from latermq_cli.terminal.commands import CommandGroup, Lazy
from latermq_cli.terminal.console import print_json, print_table
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.durations import format_duration

ALONE: Final = "alone"
COLUMNS: Final = (
    Column("SHARD", right=True),
    Column("ROLE"),
    Column("OWNER", flex=True),
    Column("EPOCH", right=True),
    Column("POSITION", right=True),
    Column("LAG", right=True),
    Column("ENGINE ANSWERED"),
)


@click.group(
    cls=CommandGroup,
    lazy={
        "verify": Lazy(
            "latermq_broker.offline.cluster_verify",
            "verify",
            "Compare a directory's log with the engine's; mend it.",
        )
    },
)
def cluster() -> None:
    """See the shards of a cluster; compare a copy of a replicated log with the engine."""


@cluster.command(epilog=example("latermq cluster show", "latermq cluster show --json"))
@watch_option
@broker_options
def show(endpoint: str, as_json: bool) -> None:
    """Show each shard: who serves it, its log's end, and what the engine does not have yet.

    A shard whose log no engine keeps is alone. Who stands by answers no calls; its metrics tell how
    far it is. If a shard does not answer, the others are shown and the exit code is 1.
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
        print_table(COLUMNS, [_cells(row) for row in rows])
    shards.finish()


def _row(number: int, address: str, state: Any) -> dict[str, Any]:
    row = {"shard": number, "role": ALONE, "owner": address, "position": state.log.end}
    if not state.HasField("replication"):
        return row
    seen = state.replication
    return row | {
        "role": seen.role,
        "cluster": seen.cluster,
        "epoch": seen.epoch,
        "position": seen.position,
        "lag_bytes": seen.lag_bytes,
        "engine_answered_ms_ago": seen.silence_ms,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    head = (str(row["shard"]), plain(row["role"]), plain(row["owner"]))
    if row["role"] == ALONE:
        return (*head, "-", str(row["position"]), "-", "-")
    return (
        *head,
        str(row["epoch"]),
        str(row["position"]),
        size(row["lag_bytes"]),
        f"{format_duration(row['engine_answered_ms_ago'])} ago",
    )
