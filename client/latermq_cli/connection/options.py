"""Options and value types that several commands share, so that a word means the same everywhere."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from latermq_cli import clock
from latermq_cli.connection.chosen_shard import shard_option
from latermq_cli.connection.credentials import access_options
from latermq_cli.terminal.console import is_terminal
from latermq_cli.terminal.failures import CommandError, RefusedError
from latermq_text.durations import parse_duration_ms
from latermq_text.instants import parse_instant_ms

DEFAULT_ENDPOINT: Final = "127.0.0.1:8081"
CONNECTION_HELP: Final = f"""\b
Connection options, of every command that talks to a broker:
  --endpoint HOST:PORT    LATERMQ_ENDPOINT    [{DEFAULT_ENDPOINT}]
  --access-key KEY        LATERMQ_ACCESS_KEY  who asks
  --secret-key SECRET     LATERMQ_SECRET_KEY  (others here see options)
  --tls                   LATERMQ_TLS=1       trust the system's roots
  --ca FILE               LATERMQ_CA          TLS; trust whom this signed
  --insecure-skip-verify  LATERMQ_INSECURE_SKIP_VERIFY
                                              TLS; trust whoever answers
  --shard N               of a cluster: ask this shard alone
  --json                                      results and errors as JSON
"""
LISTED_DEFAULT: Final = 100
LISTED_MAX: Final = 100_000

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def duration(given: str) -> int:
    """Read `500ms 10s 5m 2h 1d 1h30m` as milliseconds; a `type=` for options."""
    try:
        return parse_duration_ms(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def instant(given: str) -> int:
    """Read ISO 8601, `now`, `-1h`, `10m` as ms since the epoch; a `type=` for options."""
    try:
        return parse_instant_ms(given, clock.now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def text(given: str) -> str:
    """Take what can be sent as UTF-8; a `type=` for options."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raw = given.encode("utf-8", "surrogateescape")
        raise click.BadParameter(f"{str(raw)[1:]} is not UTF-8") from None
    return given


def pair(given: str) -> tuple[str, str]:
    """Split `NAME=VALUE` into (name, value); a `type=` for options."""
    name, equals, value = text(given).partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{given!r} is not NAME=VALUE")
    return name, value


def broker_options(command: Decorated) -> Decorated:
    """Add `--endpoint` and `--json`; the command takes `endpoint: str` and `as_json: bool`.

    With them come those of `access_options`, which the command does not see. `latermq --help` tells
    of all of them once; a command's own page has the two.
    """
    command = shard_option(access_options(json_option(command)))
    return click.option(
        "--endpoint",
        envvar="LATERMQ_ENDPOINT",
        default=DEFAULT_ENDPOINT,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="The broker to talk to; users and TLS: see `latermq --help`.",
    )(command)


def json_option(command: Decorated) -> Decorated:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON instead of text for people."
    )(command)


def limit_option(command: Decorated) -> Decorated:
    """Add `--limit`: how many rows a listing prints at most."""
    return click.option(
        "--limit",
        type=click.IntRange(1, LISTED_MAX),
        default=LISTED_DEFAULT,
        show_default=True,
        metavar="N",
        help="Print at most N.",
    )(command)


def example(*lines: str) -> str:
    """Write the epilog of a command's help: lines to copy."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def is_interactive() -> bool:
    """Tell whether somebody can be asked."""
    return is_terminal(sys.stdin)


def yes_option(command: Decorated) -> Decorated:
    """Add `--yes`, of every command that takes away what no other command brings back."""
    return click.option(
        "--yes", is_flag=True, help="Do not ask. Needed where stdin is not a terminal."
    )(command)


def confirmed(question: str, *, yes: bool) -> None:
    """Go on only after `--yes`, or a yes at a terminal.

    Raises:
        RefusedError: nobody can be asked.
        CommandError: the answer was no.
    """
    if yes:
        return
    if not is_interactive():
        raise RefusedError(f"{question} stdin is not a terminal; pass --yes")
    if not click.confirm(question, err=True):
        raise CommandError("nothing was done")


def filter_options(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Make several options one decorator, listed in the order given."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
