"""Who still reads a topic or group that is to be deleted, as `delete` names it."""

from typing import Final

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.terminal.console import counted
from latermq_cli.terminal.failures import CommandError
from latermq_cli.terminal.table import plain
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import client_pb2

NAMED_MAX: Final = 10  # consumers that are named; of more their number is told
LISTED_MAX: Final = 1_000  # clients that are asked for


def live_consumers(broker: Connection, *, topic: str = "", group: str = "") -> list[str]:
    """List the consumers of the topic or group as `CLIENT_ID (GROUP)`, of all shards.

    Empty, too, where the caller may not list clients: then there is nothing to name.
    """
    request = client_pb2.ListClientsRequest(group=group, topic=topic)
    try:
        clients, _ = broker.shards.pages(
            broker.clients.ListClients, request, "clients", LISTED_MAX, lambda each: each.client_id
        )
    except CommandError:
        return []
    return sorted(
        {f"{each.client_id} ({each.group})" for each in clients if each.type != v2.PRODUCER}
    )


def say_who_waits(consumers: list[str], until: str) -> None:
    """Print on stderr who gets nothing any more, and until when; nothing if nobody does."""
    if not consumers:
        return
    named = ", ".join(plain(each) for each in consumers[:NAMED_MAX])
    more = f" and {len(consumers) - NAMED_MAX:,} more" if len(consumers) > NAMED_MAX else ""
    count = counted(len(consumers), "live consumer")
    click.echo(f"read by {count}, served nothing {until}: {named}{more}", err=True)
