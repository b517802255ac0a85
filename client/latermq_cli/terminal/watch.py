"""`--watch`: a listing again and again, on a screen of its own, until somebody ends it."""

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import click

from latermq_cli import clock
from latermq_cli.terminal.console import stdout_is_terminal
from latermq_cli.terminal.failures import CommandError, NotAllError, RefusedError, one_line
from latermq_cli.terminal.output import OutputError, obeyed
from latermq_cli.terminal.times import format_clock

WATCH_S: Final = 2.0
WATCH_S_MIN: Final = 0.2
WATCH_S_MAX: Final = 86_400.0
_CLEAR: Final = "\x1b[H\x1b[2J"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def pause(given: str) -> float:
    """Read the seconds between two looks; a `type=` for options."""
    try:
        seconds = float(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a number of seconds") from None
    if not WATCH_S_MIN <= seconds <= WATCH_S_MAX:  # nor is NaN
        raise click.BadParameter(f"{given} s is not within {WATCH_S_MIN:g} to {WATCH_S_MAX:g}")
    return seconds


def watch_option(command: Decorated) -> Decorated:
    """Add `--watch [SECONDS]`; the command is called anew each time and does not see it."""

    @functools.wraps(command)
    def watched(*args: Any, watch: float | None, **words: Any) -> None:
        if watch is None:
            command(*args, **words)
            return
        with suppress(KeyboardInterrupt):
            again(watch, args, words)

    def again(watch: float, args: Any, words: dict[str, Any]) -> None:
        as_json = bool(words.get("as_json"))
        looked = False
        while True:
            if stdout_is_terminal() and not as_json:
                click.echo(obeyed(_CLEAR) + format_clock(clock.now_ms())[:8], nl=True)
            try:
                command(*args, **words)
            except (RefusedError, OutputError):
                raise
            except CommandError as error:  # who is away comes back: it is watched for that, too
                if not (looked or isinstance(error, NotAllError)):
                    raise
                click.echo(one_line(error, as_json=as_json), err=True)
            looked = True
            sys.stdout.flush()
            clock.sleep(watch)

    option = click.option(
        "--watch",
        type=pause,
        is_flag=False,
        flag_value=WATCH_S,
        default=None,
        metavar="[SECONDS]",
        help=f"Again and again, until Ctrl-C [every {WATCH_S:g} s].",
    )
    decorated: Any = option(watched)
    return decorated  # type: ignore[no-any-return]
