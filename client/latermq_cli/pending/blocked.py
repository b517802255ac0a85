"""`latermq pending blocked`: which message groups of a FIFO group cannot go on, and why."""

from typing import Final

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example, limit_option
from latermq_cli.terminal.console import print_json, print_table
from latermq_cli.terminal.table import Column, plain
from latermq_cli.terminal.times import format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import group_pb2

_STATES: Final = {
    "in-flight": group_pb2.MessageGroup.IN_FLIGHT,
    "backoff": group_pb2.MessageGroup.BACKOFF,
    "parked": group_pb2.MessageGroup.PARKED,
    "ready": group_pb2.MessageGroup.READY,
}
_LETTERS_SHOWN: Final = 3


@click.command(
    epilog=example(
        "latermq pending blocked billing",
        "latermq pending blocked billing --topic orders --state parked",
    )
)
@click.argument("group")
@click.option("--topic", default="", help="Only message groups of this topic.")
@click.option("--state", type=click.Choice(list(_STATES)), help="Only those in this state.")
@limit_option
@watch_option
@broker_options
def blocked(
    group: str, topic: str, state: str | None, limit: int, endpoint: str, as_json: bool
) -> None:
    """List the message groups of the FIFO group GROUP that are not idle: by what, until when.

    in-flight: a consumer has the first message. backoff: it failed and waits. parked: a message
    died and the group was told to wait for you: redrive or drop the letter. ready: nothing is in
    the way.
    """
    request = group_pb2.ListMessageGroupsRequest(
        group=group,
        topic=topic,
        state=_STATES[state] if state else group_pb2.MessageGroup.STATE_UNSPECIFIED,
    )
    with Connection(endpoint) as broker:
        shards = broker.shards
        groups, more = shards.pages(
            broker.groups.ListMessageGroups, request, "message_groups", limit
        )
    if as_json:
        print_json({"message_groups": [shards.jsonable(each) for each in groups], "more": more})
        shards.finish()
        return
    if not groups:
        click.echo("no message group is blocked")
        shards.finish()
        return
    columns = (
        Column("MESSAGE GROUP", flex=True),
        Column("TOPIC", flex=True),
        Column("STATE"),
        Column("UNTIL"),
        Column("BEHIND", right=True),
        Column("BY", flex=True),
    )
    print_table(shards.columns(columns), shards.rows([_row(each) for each in groups], groups))
    letters = [each for each in groups if each.dead_letter_offsets]
    if letters:
        click.echo(
            f"a parked one goes on after `latermq dead redrive {plain(group)} …` or "
            f"`latermq dead drop {plain(group)} …`"
        )
    if more:
        click.echo(f"… more than {limit:,}; raise --limit to see them")
    shards.finish()


def _row(group: group_pb2.MessageGroup) -> tuple[str, ...]:
    word = next((word for word, number in _STATES.items() if number == group.state), "?")
    until = format_instant(group.due_at_ms) if group.due_at_ms else "-"
    behind = group.held_count + max(0, group.live_count - 1)
    return group.name or "-", group.topic, word, until, f"{behind:,}", _cause(group)


def _cause(group: group_pb2.MessageGroup) -> str:
    letters = list(group.dead_letter_offsets)
    if letters:
        shown = ", ".join(map(str, letters[:_LETTERS_SHOWN]))
        rest = len(letters) - _LETTERS_SHOWN
        return f"dead letter {shown}" + (f" and {rest} more" if rest > 0 else "")
    if group.pending_id:
        return f"{group.pending_id}, attempt {group.attempt}"
    return "-"
