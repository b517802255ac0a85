"""`latermq`: every word of the command line and where it lives."""

from typing import Final

import click

from latermq_cli.connection.options import CONNECTION_HELP
from latermq_cli.terminal.commands import Lazy, RootGroup
from latermq_text.version import own_name

_CLI: Final = "latermq_cli"
_OFFLINE: Final = "latermq_broker.offline"  # by name: nothing here imports the broker


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(own_name())
        context.exit()


@click.group(
    cls=RootGroup,
    epilog=CONNECTION_HELP,
    lazy={
        "serve": Lazy(f"{_OFFLINE}.serve", "serve", "Run the broker."),
        "demo": Lazy(f"{_CLI}.demo.demo", "demo", "Show the life of a few messages, start to end."),
        "topic": Lazy(
            f"{_CLI}.catalog.topic", "topic", "Create, list, show, alter and delete topics."
        ),
        "group": Lazy(
            f"{_CLI}.catalog.group", "group", "The same for consumer groups; reset one in time."
        ),
        "limit": Lazy(f"{_CLI}.catalog.limit", "limit", "Limit what clients and groups may do."),
        "schedule": Lazy(
            f"{_CLI}.catalog.schedule",
            "schedule",
            "Send a message again and again, by interval or cron.",
        ),
        "send": Lazy(f"{_CLI}.messages.send", "send", "Send a message, now or later."),
        "receive": Lazy(f"{_CLI}.messages.receive", "receive", "Receive messages and print them."),
        "worker": Lazy(f"{_CLI}.worker", "worker", "Run an application's listeners."),
        "ack": Lazy(f"{_CLI}.messages.receive", "ack", "Acknowledge a message that was received."),
        "nack": Lazy(f"{_CLI}.messages.receive", "nack", "Give a received message back as failed."),
        "message": Lazy(
            f"{_CLI}.messages.message", "message", "Find messages; tell where one is in its life."
        ),
        "pending": Lazy(
            f"{_CLI}.pending.pending",
            "pending",
            "What waits: delayed, in backoff, in consumers' hands.",
        ),
        "dead": Lazy(
            f"{_CLI}.dead.dead", "dead", "Dead letters: why they died; redrive or drop them."
        ),
        "user": Lazy(f"{_CLI}.catalog.user", "user", "Who may come in: users and their secrets."),
        "acl": Lazy(
            f"{_CLI}.catalog.user", "acl", "What users may do: rights on topics and groups."
        ),
        "client": Lazy(
            f"{_CLI}.clients.client", "client", "Who is connected and holds what; let one go."
        ),
        "top": Lazy(f"{_CLI}.clients.top", "top", "Watch the groups: who is behind, what fails."),
        "broker": Lazy(f"{_CLI}.broker", "broker", "The broker: log, disk, retention, figures."),
        "cluster": Lazy(f"{_CLI}.cluster", "cluster", "The shards; a log on several machines."),
        "health": Lazy(f"{_CLI}.health", "health", "Ask whether the broker serves calls."),
        "config": Lazy(
            f"{_OFFLINE}.config_commands", "config", "Write the file of settings; check one."
        ),
        "log": Lazy(
            f"{_OFFLINE}.log_commands", "log", "Read, check or repair a data directory, offline."
        ),
        "backup": Lazy(f"{_CLI}.backup.backup", "backup", "Back up a broker that runs."),
        "restore": Lazy(
            f"{_OFFLINE}.backup_commands", "restore", "Make a data directory of a backup."
        ),
        "upgrade-check": Lazy(
            f"{_CLI}.upgrade_check", "upgrade_check", "Ask before an upgrade whether it will start."
        ),
        "console": Lazy("latermq_console.command", "console", "Serve a console for the browser."),
        "bench": Lazy(f"{_CLI}.bench.bench", "bench", "Measure a broker under load."),
    },
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and end.",
)
def latermq() -> None:
    """Run and operate the broker for messages that have to come back.

    Every command explains itself with --help. Exit codes: 0 done, 1 failed, 2 asked wrongly, 3 not
    there (of serve: the log is damaged, or the disk failed).
    """
