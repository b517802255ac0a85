"""`latermq worker`: run an application's listeners until asked to end."""

import importlib
import logging
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from latermq.app import App
from latermq.errors import LaterMQError
from latermq_cli.connection.options import duration, example
from latermq_cli.terminal.failures import CommandError, RefusedError
from latermq_cli.terminal.output import let_through
from latermq_cli.terminal.times import format_instant
from latermq_text.json_lines import json_line, text_of
from latermq_text.log_writer import BesideHandler, LogWriter

LEVELS: Final = ("debug", "info", "warning", "error")
# What every record of logging has; the rest was given with `extra`.
_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


@click.command(
    epilog=example(
        "latermq worker shop:app",
        "latermq worker shop.tasks:app --concurrency 8 --grace 1m",
        "latermq worker shop:app --json --health 127.0.0.1:8080",
    )
)
@click.argument("application", metavar="MODULE:APP")
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N",
    help="Calls of each listener at a time, instead of what the listeners say.",
)  # fmt: skip
@click.option(
    "--grace", type=duration, default="30s", show_default=True,
    help="How long calls may take to end once the worker is asked to.",
)  # fmt: skip
@click.option(
    "--endpoint", metavar="HOST:PORT",
    help="The broker, instead of the app's; an app that names none takes LATERMQ_ENDPOINT, or "
    "127.0.0.1:8081.",
)  # fmt: skip
@click.option(
    "--health-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Touch it each second while the broker answers; take it away when not.",
)  # fmt: skip
@click.option(
    "--health", metavar="HOST:PORT",
    help="Answer GET /healthz while it runs, and /readyz while it receives and the broker answers.",
)  # fmt: skip
@click.option(
    "--declare", is_flag=True,
    help="Alter topics and groups that are not as APP declares them; without it, warn.",
)  # fmt: skip
@click.option(
    "--show", is_flag=True,
    help="Print what APP listens to, and its bounds, one listener a line; do nothing else.",
)  # fmt: skip
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Log JSON, one object a line.")
def worker(
    application: str, concurrency: int | None, grace: int, endpoint: str | None,
    health_file: Path | None, health: str | None, declare: bool, show: bool, log_level: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Run the listeners of APP, a `latermq.App` in MODULE, until SIGTERM or SIGINT.

    It waits for its broker, at the start and whenever it goes away, and says so once. Asked to end,
    it stops receiving, lets the calls that run finish within --grace, and gives the rest back: they
    come again, and no attempt is counted. A second signal ends it as it is; then leases end by
    themselves.

    Exit codes: 0 all that was in hand is finished, 1 some was given back unfinished, or the broker
    refused the worker, 2 asked wrongly.
    """
    _log_to_stderr(log_level, as_json=as_json)
    let_through()
    app = _loaded(application)
    if show:
        for listener in app.listeners:
            click.echo(repr(listener))
        return
    if endpoint is not None:
        app.move_to(endpoint)
    span = timedelta(milliseconds=grace)
    try:
        finished = app.run(
            grace=span,
            concurrency=concurrency,
            health_file=health_file,
            health=health,
            declare=declare,
        )
    except LaterMQError as error:
        raise CommandError(str(error)) from None
    except OSError as error:  # an address or a file that was asked for
        where = f"{error.filename}: " if error.filename else ""
        raise RefusedError(f"{where}{error.strerror or error}") from None
    except ValueError as error:
        raise RefusedError(str(error)) from None
    if not finished:
        # A call in a thread cannot be stopped, and Python would wait for its end.
        logging.shutdown()
        os._exit(1)


def _loaded(application: str) -> App:
    """Import MODULE, from the working directory too, and return its APP.

    Raises:
        RefusedError: there is no such module, or no such app in it.
    """
    module_name, _, name = application.partition(":")
    if not module_name or not name:
        raise RefusedError(f"{application!r} is not MODULE:APP, e.g. shop.tasks:app")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise RefusedError(
            f"{module_name!r} is no module's name: write shop.tasks for shop/tasks.py"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            where = _where(error)
            text = f"module {module_name} imports {error.name}, which is not installed{where}"
            raise RefusedError(text) from None
        raise RefusedError(f"no module {module_name}, here or installed") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a module does at its top
        raise RefusedError(_failed(module_name, error)) from None
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise RefusedError(f"module {module_name} has no {name}") from None
        except Exception as error:  # noqa: BLE001  a module may have a __getattr__
            raise RefusedError(_failed(module_name, error)) from None
    if not isinstance(value, App):
        raise RefusedError(f"{application} is a {type(value).__name__}, not a latermq.App")
    return value


def _failed(module_name: str, error: BaseException) -> str:
    """Say in one line what a module raised, and where."""
    if isinstance(error, SyntaxError):
        said = text_of(error.msg)
    else:
        said = " ".join(text_of(error).split())
    name = type(error).__name__
    return f"module {module_name} cannot be imported: {name}: {said}{_where(error)}"


def _where(error: BaseException) -> str:
    """Return the file and line of the application that an error is from, in parentheses."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({text_of(error.filename)}, line {error.lineno})"
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    ours = str(Path(__file__))
    theirs = [each for each in frames if each[0] != ours and not each[0].startswith("<frozen")]
    theirs = [each for each in theirs if Path(each[0]).parent.name != "importlib"]
    here = [each for each in theirs if Path(each[0]).is_relative_to(Path.cwd())]
    for file, line in reversed(here or theirs):
        return f" ({file}, line {line})"
    return ""


class _JsonLines(logging.Formatter):
    """One JSON object for each record, with what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        given = {
            name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD
        }
        line: dict[str, object] = {
            "time": format_instant(int(record.created * 1_000)),
            "level": record.levelname,
            "logger": record.name,
            "message": text_of(record, logging.LogRecord.getMessage),
        }
        if record.exc_info:
            line["exception"] = text_of(record.exc_info, self._traceback)
        return json_line(line, given)

    def _traceback(self, exc_info: Any) -> str:
        return self.formatException(exc_info)


def _log_to_stderr(level: str, *, as_json: bool) -> None:
    """Log to stderr, beside the event loop: who collects the lines may stand still."""
    handler: logging.Handler
    try:
        handler = BesideHandler(LogWriter(sys.stderr.fileno()))
    except (AttributeError, OSError, ValueError):  # no stderr, or one of a test
        handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if as_json else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
