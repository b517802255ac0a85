"""`latermq broker`: the broker itself, and its clients as a whole."""

from collections.abc import Iterator
from typing import Any, Final

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example
from latermq_cli.terminal.commands import CommandGroup
from latermq_cli.terminal.console import counted, page_width, print_json, styled
from latermq_cli.terminal.facts import fact
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import plain
from latermq_cli.terminal.times import format_ago, format_instant
from latermq_cli.terminal.watch import watch_option
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.durations import format_duration

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_KINDS_SHOWN: Final = 3  # of lasting work
_UNUSUAL: Final = (
    ("status", "calls that failed"),
    ("refused", "requests refused"),
    ("fault", "connections ended"),
    ("connection", "connections not taken"),
)


@click.group(cls=CommandGroup)
def broker() -> None:
    """See how the broker is; ask its clients to reconnect."""


@broker.command(epilog=example("latermq broker show", "latermq broker show --json"))
@watch_option
@broker_options
def show(endpoint: str, as_json: bool) -> None:
    """Show the broker: its log, its disk, what waits, what retention did, how late it is."""
    with Connection(endpoint) as connection:
        shards, request = connection.shards, broker_pb2.GetBrokerRequest()
        parts = shards.each(lambda each: each.call(each.brokers.GetBroker, request).broker)
    if as_json:
        shown = [jsonable(state) for _, state in parts]
        print_json({"shards": shown} if shards.several else shown[0])
        shards.finish()
        return
    width = page_width()
    for index, (_, state) in enumerate(parts):
        if index:
            click.echo()
        click.echo(styled(f"broker {plain(state.name)} {plain(state.version)}".rstrip(), bold=True))
        for label, values in _facts(state):
            for line in fact(label, values, width):
                click.echo(line)
    shards.finish()


@broker.command(
    epilog=example("latermq broker reconnect --all", "latermq broker reconnect host@17@0@abc")
)
@click.argument("client_id", required=False)
@click.option("--all", "everybody", is_flag=True, help="Every client that is connected.")
@broker_options
def reconnect(client_id: str | None, everybody: bool, endpoint: str, as_json: bool) -> None:
    """Ask the client CLIENT_ID, or all, to reconnect.

    They open their telemetry streams anew, by which they tell their settings and get commands; what
    they send and hold goes on. Clients need not obey: docs/compatibility.md says which do. A
    client's id is in the broker's log.
    """
    if (client_id is None) is not everybody:
        raise click.UsageError("say whom: either CLIENT_ID or --all")
    request = broker_pb2.ReconnectClientsRequest()
    if client_id is None:
        request.all = True
    else:
        request.client_id = client_id
    with Connection(endpoint) as connection:
        shards = connection.shards
        parts = shards.each(lambda each: each.call(each.brokers.ReconnectClients, request))
    reached = sum(part.told for _, part in parts)
    out_of_reach = sum(part.out_of_reach for _, part in parts)
    if as_json:
        print_json({"told": reached, "out_of_reach": out_of_reach})
    else:
        rest = f", {out_of_reach:,} out of reach" if out_of_reach else ""
        click.echo(f"told {counted(reached, 'client')} to reconnect{rest}")
    shards.finish()


def _facts(state: Any) -> Iterator[tuple[str, list[str]]]:
    log, waiting, totals = state.log, state.waiting, state.totals
    yield "role", _role(state)
    yield "started", [_since(state.started_at_ms, state.now_ms)]
    if state.wall_ahead_ms:
        side = "ahead of" if state.wall_ahead_ms > 0 else "behind"
        gap = format_duration(abs(state.wall_ahead_ms))
        yield "clock", [f"the wall clock is {gap} {side} the broker's own time"]
    yield (
        "holds",
        [
            f"{counted(state.topics, 'topic')}, {counted(state.groups, 'group')}, "
            f"{counted(state.clients, 'client')} connected"
        ],
    )
    yield (
        "waiting",
        [
            f"{waiting.delayed:,} delayed, {waiting.backoff:,} in backoff, "
            f"{waiting.ready_retries:,} ready again, {waiting.in_flight:,} in flight, "
            f"{waiting.half_messages:,} half"
        ],
    )
    unsynced, replayed = log.end - log.synced, log.end - log.checkpointed
    yield (
        "log",
        [
            f"{size(log.bytes)} in {counted(log.segments, 'segment')} "
            f"of {size(log.segment_bytes)}, flush {log.flush}",
            f"{size(unsynced)} not yet synced, a start would replay {size(replayed)}",
            _oldest(log.oldest_stored_at_ms, state.now_ms),
        ],
    )
    yield "disk", [disk_words(state.disk)]
    yield "retention", _retention(state.retention)
    yield (
        "since start",
        [
            f"{totals.messages_sent:,} sent, {totals.messages_due:,} came due, "
            f"{totals.messages_delivered:,} delivered, "
            f"{totals.messages_acknowledged:,} acknowledged",
            f"{totals.attempts_failed:,} attempts failed, "
            f"{counted(totals.dead_letters, 'dead letter')}",
        ],
    )
    if state.dedup.ids or totals.messages_duplicate:
        yield (
            "dedup",
            [
                f"{counted(state.dedup.ids, 'id')} remembered, {size(state.dedup.bytes)} of "
                f"{size(state.dedup.bytes_max)}; {totals.messages_duplicate:,} not stored again"
            ],
        )
    if totals.messages_unreadable:
        yield "damaged", [f"{counted(totals.messages_unreadable, 'message')} given up"]
    if state.HasField("transport"):
        yield "transport", _transport(state.transport)
    if state.HasField("background"):  # older brokers have none
        yield "background", _background(state.background)
    yield (
        "p99",
        [
            f"delivery late by {_bound(totals.lateness_p99_ms)}, "
            f"loop by {_bound(totals.loop_lag_p99_ms)}, a sync takes "
            f"{_bound(totals.sync_p99_ms)}, in the last 5 minutes"
        ],
    )


def _role(state: Any) -> list[str]:
    if not state.HasField("replication"):
        return ["alone: nobody else keeps its log"]
    seen = state.replication
    return [
        f"{plain(seen.role)} of the log of {plain(seen.cluster)}, epoch {seen.epoch}, "
        f"position {seen.position}",
        f"the replicated log answered {format_duration(seen.silence_ms)} ago, a batch takes "
        f"{_bound(seen.append_p99_ms)} (p99); {counted(seen.in_flight, 'batch', 'batches')} in "
        f"flight, {size(seen.waiting_bytes)} wait, {counted(seen.gaps, 'gap')} read",
    ]


def _transport(seen: Any) -> list[str]:
    """List what is open, what was, and each kind of thing that did not go as usual."""
    lines = [
        f"{counted(seen.connections_open, 'connection')} open, {seen.connections:,} since start; "
        f"{counted(seen.calls_open, 'call')} open, {seen.calls:,} since start",
        f"{counted(seen.receives_parked, 'receive')} waiting, "
        f"{counted(seen.deadline_timers, 'deadline timer')}, {counted(seen.tasks, 'task')}",
    ]
    for kind, what in _UNUSUAL:
        reasons = [each for each in seen.others if each.kind == kind]
        if reasons:
            counts = ", ".join(f"{each.count:,} {plain(each.reason)}" for each in reasons)
            lines.append(f"{what}: {counts}")
    return lines


def _background(seen: Any) -> list[str]:
    """List what is open of lasting work, and what kinds of it wait longest for their turns."""
    lines = [f"{counted(seen.open, 'lasting job')} open, {seen.waiting:,} waiting"]
    if seen.refused:
        lines.append(f"{counted(seen.refused, 'call')} refused: too many open by one user")
    slowest = sorted(seen.kinds, key=lambda each: each.wait_p99_ms, reverse=True)[:_KINDS_SHOWN]
    if slowest:
        waits = ", ".join(f"{plain(each.kind)} {_bound(each.wait_p99_ms)}" for each in slowest)
        lines.append(f"waits for a turn (p99): {waits}")
    return lines


def _retention(done: Any) -> list[str]:
    lines = [
        *what_goes_when(done),
        f"dropped {counted(done.segments_dropped, 'segment')}, {size(done.bytes_dropped)}; "
        f"{counted(done.entries_expired, 'message')} expired, "
        f"{done.entries_expired_unread:,} unread",
        f"rolled forward {counted(done.messages_moved, 'message')}, {size(done.bytes_moved)}",
    ]
    if done.segments_kept:
        times = counted(done.segments_kept, "time")
        lines.append(f"{times} a segment was kept: too much of it is needed")
    if done.entries_expired_early:
        lines.append(
            f"{counted(done.entries_expired_early, 'message')} went before the age of their topic, "
            "for want of room"
        )
    if done.early_drops:
        lines.append(f"{counted(done.early_drops, 'segment')} went early for a full disk")
    return lines


def what_goes_when(done: Any) -> list[str]:
    """Say what will be deleted, and when."""
    age_ms, unread_ms = done.retention_ms, done.unread_retention_ms
    if not age_ms:
        lines = ["messages are kept for ever"]
    elif unread_ms == age_ms:
        lines = [f"messages go after {format_duration(age_ms)}, read or not"]
    else:
        unread = format_duration(unread_ms) if unread_ms else "when the disk is nearly full"
        after = "after " if unread_ms else ""
        lines = [
            f"messages go after {format_duration(age_ms)} once every group has read them; unread "
            f"{after}{unread}, the oldest first"
        ]
    if done.retention_bytes:
        lines.append(f"beyond {size(done.retention_bytes)} of log the oldest go, read or not")
    letters_ms = done.dead_letter_retention_ms
    lines.append(
        f"dead letters go after {format_duration(letters_ms)}"
        if letters_ms
        else "dead letters are kept for ever"
    )
    if done.kept_longer_bytes:
        lines.append(
            f"{size(done.kept_longer_bytes)} are older and kept: "
            + (
                f"topic {plain(done.kept_for_topic)} keeps its messages longer"
                if done.kept_for_topic
                else "a topic keeps its messages longer"
            )
        )
    if done.kept_unread_bytes:
        who = "a group has not read all of them"
        if done.kept_for_group:
            group, topic = plain(done.kept_for_group), plain(done.kept_for_topic)
            who = f"group {group} has not read all of {topic}"
        lines.append(
            f"{size(done.kept_unread_bytes)} are old and kept: {who}"
            + (f"; they go from {format_instant(done.kept_until_ms)} on" * bool(done.kept_until_ms))
        )
    if done.topics_with_own_retention:
        topics = counted(done.topics_with_own_retention, "topic")
        lines.append(f"{topics} with a retention of their own: `latermq topic show` says which")
    if done.unread_going_soon:
        pairs = counted(done.unread_going_soon, "group and topic", "groups and topics")
        lines.append(f"{pairs} will soon lose messages unread: see the log")
    return lines


def disk_words(disk: Any) -> str:
    if not disk.total_bytes:
        return "not looked at yet"
    free = f"{size(disk.free_bytes)} of {size(disk.total_bytes)} free"
    if disk.state == broker_pb2.FULL and disk.free_bytes >= disk.needed_bytes:
        return f"full: {free}, but no room for a further segment; sends are refused"
    if disk.state == broker_pb2.FULL:
        return f"full: {free}, {size(disk.needed_bytes)} needed; sends are refused"
    if disk.state == broker_pb2.LOW:
        return f"nearly full: {free}; old messages go early"
    return free


def _oldest(at_ms: int, now_ms: int) -> str:
    return (
        f"oldest record {_since(at_ms, now_ms)}"
        if at_ms
        else "the age of its oldest record is not known"
    )


def _since(at_ms: int, now_ms: int) -> str:
    return f"{format_instant(at_ms)} ({format_ago(at_ms, now_ms)})" if at_ms else "-"


def _bound(milliseconds: float) -> str:
    return f"≤ {milliseconds:.3g} ms"


def size(count: int) -> str:
    """Write a count of bytes for people: 1.5 MiB."""
    value = float(count)
    for unit in _UNITS:
        if value < 1_024 or unit == _UNITS[-1]:
            return f"{value:.3g} {unit}" if unit != "bytes" else f"{count} bytes"
        value /= 1_024
    raise AssertionError("the last unit takes everything")
