"""`latermq upgrade-check`: does this version open that directory, and who is connected?

Run it with the version that is to be installed.
"""

import importlib
import os
from collections import Counter
from pathlib import Path
from typing import Final

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example
from latermq_cli.terminal.console import counted, print_json, styled
from latermq_cli.terminal.failures import CommandError
from latermq_cli.terminal.table import plain
from latermq_proto.latermq.v1 import broker_pb2, client_pb2
from latermq_text.version import own_version

_OFFLINE: Final = "latermq_broker.offline.upgrade"  # by name: nothing here imports the broker
_CLIENTS_MAX: Final = 10_000
Finding = tuple[str, str, str]


@click.command(
    epilog=example(
        "latermq upgrade-check /var/lib/latermq --config /etc/latermq/latermq.toml",
        "latermq upgrade-check --json",
    )
)
@click.argument("data", required=False, type=click.Path(path_type=Path))
@click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE",
    help="The file of settings that the broker is given.",
)  # fmt: skip
@broker_options
def upgrade_check(data: Path | None, file: Path | None, endpoint: str, as_json: bool) -> None:
    """Ask whether this version can go on with the data directory DATA, and with these settings.

    Nothing is written and no broker is disturbed. Formats, record types and settings are read by
    the code of a start, up to its end; who is connected is asked of the broker that runs. DATA is
    the one that the settings name, if it is not said. Exit code 0: go ahead; 1: something is in the
    way.
    """
    offline = importlib.import_module(_OFFLINE)
    findings, directory = offline.check(data, file, dict(os.environ))
    findings += _connected(endpoint)
    ok = not any(level == "problem" for level, _, _ in findings)
    version = own_version()
    if as_json:
        print_json(
            {
                "ok": ok,
                "version": version,
                "directory": str(directory),
                "findings": [
                    {"level": level, "of": what, "text": text} for level, what, text in findings
                ],
            }
        )
    else:
        head = f"latermq {version}, asked about {plain(str(directory))}"
        click.echo(styled(head, bold=True))
        for level, what, text in findings:
            click.echo(f"  {level:<8} {what:<9} {plain(text)}")
    if not ok:
        raise CommandError("do not upgrade yet: see above")


def _connected(endpoint: str) -> list[Finding]:
    """Ask the broker that runs, if there is one, for its version and its clients."""
    try:
        with Connection(endpoint) as broker:
            state = broker.call(broker.brokers.GetBroker, broker_pb2.GetBrokerRequest()).broker
            clients, _ = broker.pages(
                broker.clients.ListClients, client_pb2.ListClientsRequest(), "clients", _CLIENTS_MAX
            )
    except CommandError as error:
        return [("note", "clients", f"not known: {error.message}")]
    kinds = Counter(f"{each.language} {each.version}".strip() or "unknown" for each in clients)
    by_kind = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    words = f": {by_kind}; docs/compatibility.md says which are tried" if kinds else ""
    return [
        ("ok", "broker", f"{state.name} at {endpoint} is version {state.version or 'unknown'}"),
        ("ok", "clients", f"{counted(len(clients), 'client')} connected{words}"),
    ]
