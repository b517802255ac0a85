"""`latermq client`: who is connected, what each holds; let one go."""

from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import (
    broker_options,
    confirmed,
    example,
    limit_option,
    yes_option,
)
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, print_json, print_table, styled
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_ago, format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import client_pb2
from latermq_text.durations import format_duration

_TYPES: Final = {
    definition_pb2.PRODUCER: "producer",
    definition_pb2.PUSH_CONSUMER: "push",
    definition_pb2.SIMPLE_CONSUMER: "simple",
    definition_pb2.PULL_CONSUMER: "pull",
    definition_pb2.LITE_PUSH_CONSUMER: "lite push",
    definition_pb2.LITE_SIMPLE_CONSUMER: "lite simple",
}


@click.group(cls=CommandGroup)
def client() -> None:
    """See who is connected and what each client holds; let one go."""


@client.command(
    "list",
    epilog=example("latermq client list", "latermq client list --group billing --watch"),
)
@click.option(
    "--group", default="", help="Only who consumes for this group, or holds messages of it."
)
@click.option(
    "--topic",
    default="",
    help="Only who publishes or subscribes to this topic, or holds messages of it.",
)
@limit_option
@watch_option
@broker_options
def list_(group: str, topic: str, limit: int, endpoint: str, as_json: bool) -> None:
    """List the clients: what each is, and how many messages it holds."""
    request = client_pb2.ListClientsRequest(group=group, topic=topic)
    with Connection(endpoint) as broker:
        shards = broker.shards
        clients, more = shards.pages(
            broker.clients.ListClients, request, "clients", limit, lambda each: each.client_id
        )
    if as_json:
        print_json({"clients": [shards.jsonable(each) for each in clients], "more": more})
        shards.finish()
        return
    if not clients:
        click.echo("no clients")
        shards.finish()
        return
    now_ms = clock.now_ms()
    columns = (
        Column("CLIENT", flex=True),
        Column("KIND"),
        Column("GROUP", flex=True),
        Column("HOLDS", right=True),
        Column("SINCE", right=True),
        Column("SEEN", right=True),
        Column("LANGUAGE", optional=True),
        Column("ADDRESS", optional=True),
    )
    rows = [_row(each, now_ms) for each in clients]
    print_table(shards.columns(columns), shards.rows(rows, clients))
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")
    shards.finish()


@client.command(epilog=example("latermq client show host@17@0@abc"))
@click.argument("client_id")
@watch_option
@broker_options
def show(client_id: str, endpoint: str, as_json: bool) -> None:
    """Show the client CLIENT_ID, and what it holds of which topic, for which group."""
    request = client_pb2.GetClientRequest(client_id=client_id)
    with Connection(endpoint) as broker:
        shards = broker.shards
        parts = shards.each(lambda each: each.call(each.clients.GetClient, request).client)
    shown = parts[0][1]
    held = [(number, each) for number, part in parts for each in part.held]
    shown.held_count = sum(part.held_count for _, part in parts)
    if as_json:
        for number, part in parts:
            shards.remember(number, part.held)
        print_json({**jsonable(shown), "held": [shards.jsonable(each) for _, each in held]})
        shards.finish()
        return
    now_ms = clock.now_ms()
    click.echo(styled(f"client {plain(shown.client_id)}", bold=True))
    for label, value in _facts(shown, now_ms):
        click.echo(f"  {label:<10}{value}")
    click.echo()
    if not held:
        click.echo("it holds no message")
        shards.finish()
        return
    columns = (
        Column("GROUP", flex=True),
        Column("TOPIC", flex=True),
        Column("HOLDS", right=True),
        Column("LONGEST", right=True),
        Column("FIRST LEASE ENDS", right=True),
    )
    rows = [
        (
            *([str(number)] if shards.several else []),
            each.group,
            each.topic,
            f"{each.count:,}",
            format_duration(max(0, now_ms - each.oldest_leased_at_ms)),
            format_ago(each.first_due_at_ms, now_ms),
        )
        for number, each in held
    ]
    print_table(shards.columns(columns), rows)
    shards.finish()


@client.command(epilog=example("latermq client kick host@17@0@abc --yes"))
@click.argument("client_id")
@yes_option
@broker_options
def kick(client_id: str, yes: bool, endpoint: str, as_json: bool) -> None:
    """Let the client CLIENT_ID go: what it holds comes to others after a second.

    Those attempts count. Its streams end; a client that lives comes back by itself, so stop or mend
    it first. Asks first, unless --yes.
    """
    confirmed(f"Take from client {plain(client_id)} what it holds?", yes=yes)
    request = client_pb2.KickClientRequest(client_id=client_id)
    with Connection(endpoint) as broker:
        shards = broker.shards
        parts = shards.each(lambda each: each.call(each.clients.KickClient, request))
    released = sum(part.released_count for _, part in parts)
    if as_json:
        print_json({"client_id": client_id, "released_count": released})
    else:
        click.echo(f"client {plain(client_id)} kicked; {counted(released, 'message')} released")
    shards.finish()


def _row(client: client_pb2.Client, now_ms: int) -> tuple[str, ...]:
    return (
        client.client_id,
        _TYPES.get(client.type, "-"),
        client.group or "-",
        f"{client.held_count:,}",
        _for(client.since_at_ms, now_ms),
        format_ago(client.seen_at_ms, now_ms) if client.seen_at_ms else "-",
        f"{client.language} {client.version}".strip() or "-",
        client.address or "-",
    )


def _facts(client: client_pb2.Client, now_ms: int) -> list[tuple[str, Any]]:
    facts = [
        ("kind", _TYPES.get(client.type, "not said")),
        ("group", plain(client.group)),
        ("topics", ", ".join(map(plain, client.topics))),
        ("language", plain(f"{client.language} {client.version}".strip())),
        ("service", plain(client.service)),
        ("address", plain(client.address)),
        ("user", plain(client.user)),
    ]
    if client.since_at_ms:
        since = f"{format_instant(client.since_at_ms)} ({_for(client.since_at_ms, now_ms)})"
        stream = "" if client.reachable else "; holds no telemetry stream open"
        facts += [("since", since), ("seen", format_ago(client.seen_at_ms, now_ms) + stream)]
    facts.append(("holds", counted(client.held_count, "message")))
    return [(label, value) for label, value in facts if value]


def _for(at_ms: int, now_ms: int) -> str:
    return format_duration(max(0, now_ms - at_ms)) if at_ms else "-"
