"""`latermq config`: write the commented file of settings; check one."""

import os
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click

from latermq_broker.config.toml_file import load
from latermq_broker.errors import ConfigError
from latermq_cli.connection.options import example, json_option
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import print_json
from latermq_cli.terminal.failures import CommandError, RefusedError
from latermq_cli.terminal.table import plain

_FILE: Final = "latermq.toml"


@click.group(cls=CommandGroup)
def config() -> None:
    """Write a commented file of settings, or check one."""


@config.command(
    epilog=example("latermq config init", "latermq config init /etc/latermq/latermq.toml")
)
@click.argument("file", default=_FILE)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def init(file: str, force: bool, as_json: bool) -> None:
    """Write FILE with every setting, its default and what it does, all commented out.

    `-` writes to standard output. A broker that is given the file as it is runs as without one.
    """
    text = resources.files("latermq_broker.config").joinpath(_FILE).read_text("utf-8")
    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise RefusedError(f"{plain(file)} is there already; --force replaces it") from None
    except OSError as error:
        raise CommandError(f"cannot write {plain(file)}: {error.strerror or error}") from None
    if as_json:
        print_json({"file": file})
    else:
        click.echo(f"{plain(file)} written; `latermq serve --config {plain(file)}` reads it")


@config.command(epilog=example("latermq config check /etc/latermq/latermq.toml"))
@click.argument("file", default=_FILE)
@json_option
def check(file: str, as_json: bool) -> None:
    """Check FILE, with the variables LATERMQ_* of the environment: would a broker start with it?

    The first setting that is wrong is named, exit code 2.
    """
    try:
        load(Path(file), _settings(), {})
    except ConfigError as error:
        raise RefusedError(str(error)) from None
    if as_json:
        print_json({"file": file, "ok": True})
    else:
        click.echo(f"{plain(file)} is fine")


def _settings() -> dict[str, Any]:
    return dict(os.environ)
