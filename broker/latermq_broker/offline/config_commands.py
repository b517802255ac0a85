"""`latermq config`: write the commented file of settings, and what operates a broker; check one."""

import os
import re
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
_OPERATING: Final = (
    "latermq.service", "latermq.socket", "latermq.rules.yml", "latermq.dashboard.json"
)  # fmt: skip
_PATH_OF_RUNBOOK: Final = "runbook: docs/"
_URL: Final = re.compile(r"https?://[\w.~:/@%+-]+")


@click.group(cls=CommandGroup)
def config() -> None:
    """Write a commented file of settings, or check one; write what watches and starts a broker."""


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


@config.command(
    epilog=example(
        "latermq config files /etc/latermq",
        "latermq config files . --runbooks https://git.example/latermq/blob/main/docs",
    )
)
@click.argument("directory")
@click.option(
    "--runbooks", metavar="URL",
    help="Where this version's docs are for you: alerts then have a runbook_url below it.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that are there.")
@json_option
def files(directory: str, runbooks: str | None, force: bool, as_json: bool) -> None:
    """Write what starts and watches a broker into DIRECTORY, which is made.

    latermq.service is a hardened unit for systemd, latermq.socket one that keeps its port open,
    latermq.rules.yml has alerts for Prometheus, latermq.dashboard.json is a dashboard for Grafana.
    """
    base = (runbooks or "").rstrip("/")
    if runbooks is not None and not _URL.fullmatch(base):
        raise RefusedError(f"{plain(runbooks)} is no address: say https://HOST/PATH")
    folder = Path(directory)
    there = [name for name in _OPERATING if (folder / name).exists()]
    if there and not force:
        raise RefusedError(f"{plain(str(folder / there[0]))} is there already; --force replaces it")
    shipped = resources.files("latermq_broker.config").joinpath("operating")
    for name in _OPERATING:
        text = shipped.joinpath(name).read_text("utf-8")
        if base:
            text = text.replace(_PATH_OF_RUNBOOK, f"runbook_url: {base}/")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            why = error.strerror or error
            raise CommandError(f"cannot write {plain(str(folder / name))}: {why}") from None
    if as_json:
        print_json({"files": [str(folder / name) for name in _OPERATING]})
    else:
        for name in _OPERATING:
            click.echo(plain(str(folder / name)))


def _settings() -> dict[str, Any]:
    return dict(os.environ)
