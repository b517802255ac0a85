"""`latermq user`: create, list, show, delete, rotate, disable, enable; `latermq acl`: rights."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import (
    broker_options,
    confirmed,
    example,
    limit_option,
    yes_option,
)
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import print_json, print_table, styled
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import user_pb2

RIGHTS: Final = ("pub", "sub", "browse", "body", "redrive", "purge")

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def user() -> None:
    """Manage who may come in: users, their secrets, their rights (see `latermq acl`).

    The broker asks for names when it was started with `[auth] enabled = true`.
    """


@click.group(cls=CommandGroup)
def acl() -> None:
    """Manage what users may do: rights on topics and groups.

    A pattern is a name, a beginning followed by * such as 'orders-*', or '*' for all.

    \b
    on a topic   pub: send; sub: receive; browse: see what is there; body: and its bodies;
                 purge: take delayed messages back (on '*', because ids name no topic)
    on a group   sub: receive as the group; browse: see its dead letters and what waits;
                 body: and their bodies; redrive: send them back or drop them;
                 purge: reset the group
    """


@user.command(epilog=example("latermq user create shop", "latermq user create ops --admin --json"))
@click.argument("name")
@click.option("--admin", is_flag=True, help="May do everything, users and rights included.")
@broker_options
def create(name: str, admin: bool, endpoint: str, as_json: bool) -> None:
    """Create the user NAME and print its secret, which is never told again."""
    request = user_pb2.CreateUserRequest(access_key=name, admin=admin)
    with Connection(endpoint) as broker:
        made = broker.call(broker.users.CreateUser, request)
    _tell_secret(made, as_json)


@user.command(epilog=example("latermq user rotate shop"))
@click.argument("name")
@broker_options
def rotate(name: str, endpoint: str, as_json: bool) -> None:
    """Give the user NAME a new secret and print it; the old one is worth nothing from now on."""
    request = user_pb2.RotateUserRequest(access_key=name)
    with Connection(endpoint) as broker:
        made = broker.call(broker.users.RotateUser, request)
    _tell_secret(made, as_json)


@user.command("list", epilog=example("latermq user list"))
@limit_option
@watch_option
@broker_options
def list_(limit: int, endpoint: str, as_json: bool) -> None:
    """List the users."""
    request = user_pb2.ListUsersRequest()
    with Connection(endpoint) as broker:
        users, more = broker.pages(broker.users.ListUsers, request, "users", limit)
    if as_json:
        print_json({"users": [jsonable(each) for each in users], "more": more})
        return
    if not users:
        click.echo("no users yet; `latermq user create NAME` makes one")
        return
    columns = (
        Column("USER", flex=True), Column("IS"), Column("GRANTS", right=True), Column("SECRET OF"),
    )  # fmt: skip
    rows = [
        (each.access_key, _state(each), f"{len(each.grants):,}", _secret_age(each))
        for each in users
    ]
    print_table(columns, rows)
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")


@user.command(epilog=example("latermq user show shop"))
@click.argument("name")
@broker_options
def show(name: str, endpoint: str, as_json: bool) -> None:
    """Show the user NAME and what it may do."""
    request = user_pb2.GetUserRequest(access_key=name)
    with Connection(endpoint) as broker:
        account = broker.call(broker.users.GetUser, request).user
    if as_json:
        print_json(jsonable(account))
        return
    click.echo(styled(f"user {plain(account.access_key)}", bold=True))
    click.echo(f"  is         {_state(account)}")
    click.echo(f"  secret of  {_secret_age(account)}")
    if account.grants:
        click.echo()
        _print_grants([account])


@user.command(epilog=example("latermq user delete shop --yes"))
@click.argument("name")
@yes_option
@broker_options
def delete(name: str, yes: bool, endpoint: str, as_json: bool) -> None:
    """Delete the user NAME and its rights. Asks first, unless --yes."""
    confirmed(f"Delete user {plain(name)}?", yes=yes)
    with Connection(endpoint) as broker:
        broker.call(broker.users.DeleteUser, user_pb2.DeleteUserRequest(access_key=name))
    if as_json:
        print_json({"access_key": name, "deleted": True})
    else:
        click.echo(f"user {plain(name)} deleted")


@user.command(epilog=example("latermq user disable shop"))
@click.argument("name")
@broker_options
def disable(name: str, endpoint: str, as_json: bool) -> None:
    """Refuse the user NAME from now on; its rights and secret are kept."""
    _alter(name, endpoint, as_json, disabled=True)


@user.command(epilog=example("latermq user enable shop"))
@click.argument("name")
@broker_options
def enable(name: str, endpoint: str, as_json: bool) -> None:
    """Let the user NAME in again."""
    _alter(name, endpoint, as_json, disabled=False)


def _grant_options(command: Decorated) -> Decorated:
    options = (
        click.argument("name"),
        click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="Repeatable."),
        click.option("--group", "groups", multiple=True, metavar="PATTERN", help="Repeatable."),
        click.option(
            "--right", "rights", multiple=True, type=click.Choice(RIGHTS), help="Repeatable."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@acl.command(
    epilog=example(
        "latermq acl grant shop --topic 'orders-*' --right pub",
        "latermq acl grant billing --topic orders --group billing --right sub",
        "latermq acl grant support --group '*' --right browse --right redrive",
    )
)
@_grant_options
@broker_options
def grant(
    name: str,
    topics: Sequence[str],
    groups: Sequence[str],
    rights: Sequence[str],
    endpoint: str,
    as_json: bool,
) -> None:
    """Let the user NAME do more on some topics or groups: all that is said, or nothing."""
    if not rights:
        raise click.UsageError(f"say what: --right {', '.join(RIGHTS)}")
    _change("GrantRights", name, _grants(topics, groups, rights), endpoint, as_json)


@acl.command(
    epilog=example(
        "latermq acl revoke shop --topic 'orders-*' --right pub",
        "latermq acl revoke billing --group billing",
    )
)
@_grant_options
@broker_options
def revoke(
    name: str,
    topics: Sequence[str],
    groups: Sequence[str],
    rights: Sequence[str],
    endpoint: str,
    as_json: bool,
) -> None:
    """Take rights of the user NAME away; without --right all that were given on the pattern.

    A pattern is meant as it was granted: revoking 'orders-1' leaves what 'orders-*' gives.
    """
    _change("RevokeRights", name, _grants(topics, groups, rights), endpoint, as_json)


@acl.command("list", epilog=example("latermq acl list", "latermq acl list shop"))
@click.argument("name", required=False)
@limit_option
@watch_option
@broker_options
def list_grants(name: str | None, limit: int, endpoint: str, as_json: bool) -> None:
    """List the rights of all users, or of the user NAME."""
    with Connection(endpoint) as broker:
        if name is None:
            request = user_pb2.ListUsersRequest()
            users, more = broker.pages(broker.users.ListUsers, request, "users", limit)
        else:
            lookup = user_pb2.GetUserRequest(access_key=name)
            users, more = [broker.call(broker.users.GetUser, lookup).user], False
    if as_json:
        print_json({"users": [jsonable(each) for each in users], "more": more})
        return
    _print_grants(users)
    if more:
        click.echo(f"… more than {limit:,} users; raise --limit to see them")


def _alter(name: str, endpoint: str, as_json: bool, *, disabled: bool) -> None:
    request = user_pb2.AlterUserRequest(access_key=name, disabled=disabled)
    with Connection(endpoint) as broker:
        altered = broker.call(broker.users.AlterUser, request).user
    if as_json:
        print_json(jsonable(altered))
    else:
        click.echo(f"user {plain(altered.access_key)}: {_state(altered)}")


def _grants(
    topics: Sequence[str], groups: Sequence[str], rights: Sequence[str]
) -> list[user_pb2.Grant]:
    if not topics and not groups:
        raise click.UsageError("say on what: --topic PATTERN, --group PATTERN")
    return [
        user_pb2.Grant(kind=kind, pattern=pattern, rights=rights)
        for kind, patterns in ((user_pb2.Grant.TOPIC, topics), (user_pb2.Grant.GROUP, groups))
        for pattern in patterns
    ]


def _change(
    method: str, name: str, grants: list[user_pb2.Grant], endpoint: str, as_json: bool
) -> None:
    first, *others = grants
    request = user_pb2.ChangeGrantRequest(access_key=name, grant=first, others=others)
    with Connection(endpoint) as broker:
        changed = broker.call(getattr(broker.users, method), request).user
    if as_json:
        print_json(jsonable(changed))
        return
    click.echo(styled(f"user {plain(changed.access_key)}", bold=True))
    _print_grants([changed])


def _print_grants(users: Sequence[user_pb2.User]) -> None:
    rows = []
    for each in users:
        if each.admin:
            rows.append((each.access_key, "everything", "", "admin"))
        rows += [
            (
                each.access_key,
                str(user_pb2.Grant.Kind.Name(entry.kind)).lower(),
                entry.pattern,
                " ".join(entry.rights),
            )
            for entry in each.grants
        ]
    if not rows:
        click.echo("no rights; `latermq acl grant` gives some")
        return
    columns = (Column("USER", flex=True), Column("ON"), Column("PATTERN", flex=True), Column("MAY"))
    print_table(columns, rows)


def _tell_secret(made: user_pb2.SecretResponse, as_json: bool) -> None:
    if as_json:
        print_json({**jsonable(made.user), "secret": made.secret})
        return
    click.echo(f"LATERMQ_ACCESS_KEY={made.user.access_key}")
    click.echo(f"LATERMQ_SECRET_KEY={made.secret}")
    click.echo("keep the secret: it is not told again", err=True)


def _state(each: user_pb2.User) -> str:
    words = ["admin"] if each.admin else ["user"]
    words += ["disabled"] if each.disabled else []
    return ", ".join(words + (["configured"] if each.configured else []))


def _secret_age(each: user_pb2.User) -> str:
    return "the configuration" if each.configured else format_instant(each.rotated_at_ms)
