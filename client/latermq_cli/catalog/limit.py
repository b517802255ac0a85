"""`latermq limit`: what clients, groups and users may do at most; set, show, list, unset."""

import re
from typing import Any, Final

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example, limit_option
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, print_json, print_table
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import limit_pb2

_SCOPES: Final = {
    "client": limit_pb2.Limit.CLIENT,
    "group": limit_pb2.Limit.GROUP,
    "user": limit_pb2.Limit.USER,
}
_WORDS: Final = {number: word for word, number in _SCOPES.items()}
_SIZE: Final = re.compile(r"(\d{1,15})([kmg]?)", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LIMITS_MAX: Final = 10_000
_SCOPE: Final = click.argument("scope", type=click.Choice(list(_SCOPES)))
_NAME: Final = click.argument("name")


def size(text: str) -> int:
    """Read `10M` as bytes; a `type=` for options."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{text!r} is not a size such as 65536, 64k, 10M or 1G")
    return int(match[1]) * _FACTORS[match[2].lower()]


@click.group(cls=CommandGroup)
def limit() -> None:
    """Limit what clients, consumer groups and users may do; without a limit nothing is.

    Beyond it a call is answered TOO_MANY_REQUESTS, which clients take for "later". Limits hold at
    once, and stay when the broker is started again.

    A client is what calls under one client id: one producer or consumer object of one process. Its
    id is new with every start, and so with every `latermq send`; so limits of clients are set for
    '*'. They hold for each client by itself, not for all together.

    A client chooses its id. Where users have names (auth.enabled), a limit of a user holds for all
    its clients together, whatever ids they take.
    """


@limit.command(
    "set",
    epilog=example(
        "latermq limit set client '*' --sends 5000 --bytes 20M",
        "latermq limit set client host@17@0@abc --sends 10",
        "latermq limit set user shop --sends 20000",
        "latermq limit set group billing --in-flight 1000 --parked-polls 50",
    ),
)
@_SCOPE
@_NAME
@click.option(
    "--parked-polls", type=click.IntRange(min=1), metavar="N",
    help="Receives that may wait at once; pulls are counted apart.",
)  # fmt: skip
@click.option(
    "--in-flight", type=click.IntRange(min=1), metavar="N",
    help="Messages that a group may hold leased at once.",
)  # fmt: skip
@click.option(
    "--sends", type=click.IntRange(min=1), metavar="N",
    help="Messages that a client or user may send per second, with those of a user's schedules "
    "and redrives to topics.",
)  # fmt: skip
@click.option(
    "--bytes", "bytes_", type=size, metavar="SIZE",
    help="Bytes of its sends per second: 65536, 64k, 10M.",
)  # fmt: skip
@broker_options
def set_(
    scope: str,
    name: str,
    parked_polls: int | None,
    in_flight: int | None,
    sends: int | None,
    bytes_: int | None,
    endpoint: str,
    as_json: bool,
) -> None:
    """Set limits of the client, group or user NAME.

    NAME '*' is each one, by itself, that has no limit of its own for it; of a client, NAME is its
    client id, as in the broker's log. What is not given stays as it is.

    Of sends and bytes a second's worth may go at once. One batch may overdraw it: as long as
    anything is left a call passes whole, however large, and what follows waits until that is made
    up for. So the rate holds over time, not within every second.
    """
    if not any((parked_polls, in_flight, sends, bytes_)):
        raise click.UsageError("say what to limit: --parked-polls, --in-flight, --sends, --bytes")
    wanted = limit_pb2.Limit(
        scope=_SCOPES[scope],
        name=name,
        parked_polls=parked_polls or 0,
        in_flight=in_flight or 0,
        sends_per_s=sends or 0,
        bytes_per_s=bytes_ or 0,
    )
    with Connection(endpoint) as broker:
        made = broker.call(broker.limits.SetLimit, limit_pb2.SetLimitRequest(limit=wanted)).limit
    _print_one(made, as_json)


@limit.command(epilog=example("latermq limit show group billing"))
@_SCOPE
@_NAME
@broker_options
def show(scope: str, name: str, endpoint: str, as_json: bool) -> None:
    """Show what the client, group or user NAME is limited to, by its own limits and '*'."""
    with Connection(endpoint) as broker:
        entries, _ = broker.pages(
            broker.limits.ListLimits, limit_pb2.ListLimitsRequest(), "limits", _LIMITS_MAX
        )
    holds = limit_pb2.Limit(scope=_SCOPES[scope], name=name)
    for known in ("*", name):
        for each in entries:
            if (each.scope, each.name) == (holds.scope, known):
                holds.MergeFrom(each)
    holds.name = name
    if as_json:
        print_json(jsonable(holds))
        return
    click.echo(f"{_whose(scope, name)}: {_words(holds) or 'no limits'}")


@limit.command("list", epilog=example("latermq limit list"))
@limit_option
@watch_option
@broker_options
def list_(limit: int, endpoint: str, as_json: bool) -> None:
    """List the limits that are set."""
    with Connection(endpoint) as broker:
        entries, more = broker.pages(
            broker.limits.ListLimits, limit_pb2.ListLimitsRequest(), "limits", limit
        )
    if as_json:
        print_json({"limits": [jsonable(each) for each in entries], "more": more})
        return
    if not entries:
        click.echo("no limits; `latermq limit set client '*' --sends 5000` would set one")
        return
    columns = (
        Column("SCOPE"),
        Column("NAME", flex=True),
        Column("PARKED POLLS", right=True),
        Column("IN FLIGHT", right=True),
        Column("SENDS/S", right=True),
        Column("BYTES/S", right=True),
        Column("CHANGED", optional=True),
    )
    print_table(columns, [_row(each) for each in entries])
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")


@limit.command(epilog=example("latermq limit unset group billing"))
@_SCOPE
@_NAME
@broker_options
def unset(scope: str, name: str, endpoint: str, as_json: bool) -> None:
    """Take all limits of the client, group or user NAME away; from then on it has those of '*'."""
    request = limit_pb2.UnsetLimitRequest(scope=_SCOPES[scope], name=name)
    with Connection(endpoint) as broker:
        broker.call(broker.limits.UnsetLimit, request)
    if as_json:
        print_json({"scope": scope, "name": name, "unset": True})
    elif name == "*":
        click.echo(f"no limits hold for every {scope} any more")
    else:
        click.echo(f"{scope} {plain(name)} has no limits of its own any more")


def _print_one(entry: Any, as_json: bool) -> None:
    if as_json:
        print_json(jsonable(entry))
        return
    click.echo(f"{_whose(_WORDS[entry.scope], entry.name)}: {_words(entry)}")


def _whose(scope: str, name: str) -> str:
    return f"each {scope} by itself (*)" if name == "*" else f"{scope} {plain(name)}"


def _words(entry: Any) -> str:
    words = (
        (entry.parked_polls, "parked poll", ""),
        (entry.in_flight, "message", " in flight"),
        (entry.sends_per_s, "message", "/s"),
        (entry.bytes_per_s, "byte", "/s"),
    )
    return ", ".join(f"{counted(count, noun)}{rest}" for count, noun, rest in words if count)


def _row(entry: Any) -> tuple[str, ...]:
    counts = (entry.parked_polls, entry.in_flight, entry.sends_per_s, entry.bytes_per_s)
    return (
        _WORDS[entry.scope],
        entry.name,
        *(f"{count:,}" if count else "-" for count in counts),
        format_instant(entry.changed_at_ms),
    )
