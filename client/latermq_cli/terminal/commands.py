"""The command tree: what each word means, loaded only when it is used.

`latermq --help` must be quick, so a group knows its commands' names, modules and one-line help;
gRPC is imported by the command that is run. Errors of every command end here as one line.
"""

import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, NoReturn

import click

from latermq_cli.extras import hint
from latermq_cli.terminal.failures import CommandError, RefusedError, one_line
from latermq_cli.terminal.output import guarded_output

INTERRUPTED: Final = 130  # what a shell reports for SIGINT
# What a user's files, rights or limits answer, and another try as it is cannot change.
SURROUNDINGS: Final = frozenset({
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.EIO,
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ELOOP,
    errno.ENAMETOOLONG, errno.ENXIO,
})  # fmt: skip


class Lazy(NamedTuple):
    """Where a command lives, and what a listing says about it without loading it."""

    module: str
    attribute: str
    help: str


class CommandGroup(click.Group):
    """A group of commands that are imported on first use, listed in the order they were given."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._lazy.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            # click knows the imported commands only, so it cannot say what was meant.
            alike = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not alike or args[0].startswith("-"):
                raise
            text = f"No such command '{args[0]}', did you mean '{alike[0]}'"
            raise click.UsageError(text, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        if name in self._lazy:
            return self._lazy[name].help
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=100) if command is not None else ""


class RootGroup(CommandGroup):
    """The whole command: runs what was asked and turns every failure into a line and a code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # not of the output; click would end it without a word
            raise RuntimeError(f"BrokenPipeError: {error}") from error
        except UnicodeEncodeError as error:
            if error.encoding != "utf-8":  # of the output, as the environment says
                text = f"this output's encoding, {error.encoding}, lacks a character of it"
                raise CommandError(text) from error
            # The shell handed on bytes that are no text.
            raise RefusedError(f"{error.object!r} is not UTF-8") from error
        except OSError as error:
            refusal = _of_surroundings(error)
            if not refusal or os.environ.get("LATERMQ_TRACEBACK"):
                raise
            raise RefusedError(refusal) from error
        except ValueError as error:  # protobuf's, of a number that no field of a request holds
            before, words, number = str(error).partition("Value out of range: ")
            if before or not words:
                raise
            raise RefusedError(f"{number} is too large a number, or below 0") from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        name = prog_name or "latermq"
        as_json = "--json" in (sys.argv[1:] if args is None else args)
        try:
            with guarded_output():
                try:
                    result = super().main(args, name, complete_var, standalone_mode=False, **extra)
                except click.exceptions.NoArgsIsHelpError as shown:
                    click.echo(shown.format_message())
                    sys.exit(0)
        except click.ClickException as error:
            click.echo(one_line(error, as_json=as_json), err=True)
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("latermq: interrupted", err=True)
            sys.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            needed = hint(error.name, sys.argv[1:] if args is None else args)
            if not needed:
                _bug(error, as_json=as_json)
            click.echo(one_line(RefusedError(needed), as_json=as_json), err=True)
            sys.exit(RefusedError.exit_code)
        except Exception as error:  # noqa: BLE001  the last line of defence: a bug of ours
            _bug(error, as_json=as_json)
        if not standalone_mode:
            return result
        sys.exit(result if isinstance(result, int) else 0)


def _of_surroundings(error: OSError) -> str:
    """Say what files, rights or limits of this machine refuse; "": another thing failed."""
    if error.errno is None or error.errno not in SURROUNDINGS:
        return ""
    name = error.filename
    where = f"{os.fsdecode(name)}: " if isinstance(name, str | bytes | os.PathLike) else ""
    return f"{where}{error.strerror or error}"


def _bug(error: Exception, *, as_json: bool) -> NoReturn:
    if os.environ.get("LATERMQ_TRACEBACK"):
        raise error
    text = " ".join(f"{type(error).__name__}: {error}".split())
    failure = CommandError(f"unexpected {text} (LATERMQ_TRACEBACK=1 shows where)")
    click.echo(one_line(failure, as_json=as_json), err=True)
    sys.exit(1)
