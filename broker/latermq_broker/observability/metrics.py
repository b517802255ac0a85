"""The broker's figures, for a Prometheus.

Counters begin at 0 with each start of the broker. Times are in seconds, as Prometheus wants them.
Series by consumer group and topic are as many as there are subscriptions, at most
`metrics.subscriptions_max`; what is left out is told.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from latermq_broker.background.jobs import Background
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.conditions import Part
from latermq_broker.engine.state.figures import Histogram
from latermq_broker.engine.views.overview import Overview
from latermq_broker.observability.exposition import (
    Family,
    column,
    histogram_lines,
    label_text,
    sample,
)
from latermq_broker.observability.group_metrics import group_page
from latermq_broker.observability.log import lines_left_out
from latermq_broker.observability.process_figures import process_figures
from latermq_broker.observability.replication_figures import ReplicationFigures, replication_page
from latermq_broker.observability.transport_figures import TransportFigures
from latermq_text.version import is_compiled, own_version

BUILD: Final = Family(
    "latermq_build_info", "gauge", "Always 1; its labels say which broker this is."
)
CLIENTS: Final = Family(
    "latermq_clients", "gauge", "Clients, producers and consumers, that have said what they are."
)
PARKED: Final = Family(
    "latermq_receives_parked", "gauge", "Receives that wait at the broker for a message to come."
)
BEHIND: Final = Family(
    "latermq_schedules_behind",
    "gauge",
    "Schedules whose next tick is later than their calendar says: the clock was ahead for a while.",
)
BACKGROUND_OPEN: Final = Family(
    "latermq_background_open",
    "gauge",
    "Calls that last, and lasting work of the broker's own, begun and not ended.",
)
BACKGROUND_WAITING: Final = Family(
    "latermq_background_waiting",
    "gauge",
    "Those that wait for their turn, or until fewer lasting calls of their user run.",
)
BACKGROUND_REFUSED: Final = Family(
    "latermq_background_refused_total",
    "counter",
    "Lasting calls refused because their user had as many open as may run and wait.",
)
BACKGROUND_WAIT: Final = Family(
    "latermq_background_wait_seconds",
    "histogram",
    "How long lasting work waited for each of its turns, by kind.",
)
BACKGROUND_USED: Final = Family(
    "latermq_background_seconds_total",
    "counter",
    "Time of the event loop that lasting work took, by kind.",
)
LOG_LEFT_OUT: Final = Family(
    "latermq_log_lines_left_out_total",
    "counter",
    "Lines of the log that were not written, as nobody took those before them.",
)
NOT_WELL: Final = Family(
    "latermq_not_well",
    "gauge",
    "1 while a part of the broker is out of order, which serves without: /readyz says why.",
)
COUNTERS: Final[tuple[tuple[str, str, Callable[[Overview], float]], ...]] = (
    (
        "messages_sent",
        "Messages stored for their producers, delayed ones included.",
        lambda seen: seen.figures.messages_sent,
    ),
    (
        "messages_duplicate",
        "Messages that were not stored because another had their dedup id.",
        lambda seen: seen.figures.messages_duplicate,
    ),
    (
        "sent_bytes",
        "Bytes of the log that messages sent took.",
        lambda seen: seen.figures.bytes_sent,
    ),
    (
        "messages_due",
        "Delayed messages whose time has come.",
        lambda seen: seen.figures.messages_due,
    ),
    (
        "schedule_ticks",
        "Messages that schedules have sent.",
        lambda seen: seen.figures.schedule_ticks,
    ),
    (
        "messages_delivered",
        "Messages given to consumers, each attempt counted.",
        lambda seen: seen.figures.messages_delivered,
    ),
    (
        "messages_acknowledged",
        "Messages that consumers acknowledged.",
        lambda seen: seen.figures.messages_acknowledged,
    ),
    (
        "attempts_failed",
        "Attempts that a consumer said had failed, or whose lease ran out.",
        lambda seen: seen.figures.attempts_failed,
    ),
    (
        "dead_letters",
        "Messages that became dead letters.",
        lambda seen: seen.figures.dead_letters,
    ),
    (
        "messages_unreadable",
        "Damaged messages that were given up; see the log for where.",
        lambda seen: seen.unreadable,
    ),
    (
        "segments_scrubbed",
        "Old files of the log that were read and checked.",
        lambda seen: seen.scrubbed.segments,
    ),
    (
        "records_damaged",
        "Damaged places found by those checks, each time they are found.",
        lambda seen: seen.scrubbed.damages,
    ),
    (
        "log_records",
        "Records appended to the log.",
        lambda seen: seen.log_records,
    ),
    (
        "sends_refused_disk_full",
        "Sends refused because the disk was full.",
        lambda seen: seen.disk.sends_refused,
    ),
    (
        "segments_dropped",
        "Files of the log that retention removed.",
        lambda seen: seen.retention.segments_dropped,
    ),
    (
        "segments_dropped_bytes",
        "Bytes of the log that retention removed.",
        lambda seen: seen.retention.bytes_dropped,
    ),
    (
        "messages_expired",
        "Messages that retention removed from their topics.",
        lambda seen: seen.retention.trims.entries_expired,
    ),
    (
        "messages_expired_unread",
        "Messages that retention removed before a consumer group got them, counted for each group.",
        lambda seen: seen.retention.trims.entries_expired_unread,
    ),
    (
        "messages_expired_early",
        "Messages that retention removed before the age of their topic, because the disk was "
        "nearly full or the log larger than store.retention_bytes.",
        lambda seen: seen.retention.trims.entries_expired_early,
    ),
    (
        "messages_moved",
        "Messages that retention copied to the end of the log because they are still needed.",
        lambda seen: seen.retention.roll_forward.messages_moved,
    ),
    (
        "moved_bytes",
        "Bytes of the messages that retention copied to the end of the log.",
        lambda seen: seen.retention.roll_forward.bytes_moved,
    ),
    (
        "segments_kept",
        "Times that an old file of the log had to stay because too much of it is needed.",
        lambda seen: seen.retention.segments_kept,
    ),
    (
        "segments_dropped_early",
        "Files of the log removed before their age because the disk was nearly full.",
        lambda seen: seen.retention.early_drops,
    ),
)
GAUGES: Final[tuple[tuple[str, str, Callable[[Overview], float]], ...]] = (
    (
        "start_time_seconds",
        "When the broker started, in seconds since the Unix epoch.",
        lambda seen: seen.opened_ms / 1_000,
    ),
    (
        "wall_clock_ahead_seconds",
        "How far the machine's clock was set ahead of the broker's own time since the start.",
        lambda seen: seen.wall_ahead_ms / 1_000,
    ),
    (
        "topics",
        "Topics, those for dead letters included.",
        lambda seen: seen.topic_count,
    ),
    (
        "groups",
        "Consumer groups.",
        lambda seen: seen.group_count,
    ),
    (
        "messages_delayed",
        "Messages that wait for the time they were sent for.",
        lambda seen: seen.delayed,
    ),
    (
        "messages_leased",
        "Messages that consumers hold now.",
        lambda seen: seen.leased,
    ),
    (
        "messages_backoff",
        "Messages that failed and wait for their next attempt.",
        lambda seen: seen.backoff,
    ),
    (
        "retries_ready",
        "Messages that failed, have waited, and may be received again.",
        lambda seen: seen.ready_retries,
    ),
    (
        "half_messages",
        "Messages that wait for the end of their transaction.",
        lambda seen: seen.half_messages,
    ),
    (
        "dedup_ids",
        "Dedup ids that are remembered.",
        lambda seen: len(seen.dedup),
    ),
    (
        "dedup_bytes",
        "What remembered dedup ids take in a checkpoint, at most dedup.bytes_max.",
        lambda seen: seen.dedup.bytes,
    ),
    (
        "log_bytes",
        "Size of the files of the log.",
        lambda seen: seen.log_bytes,
    ),
    (
        "log_segments",
        "Files of the log.",
        lambda seen: seen.segment_count,
    ),
    (
        "log_unsynced_bytes",
        "Bytes of the log that are written, but not yet safe from a power loss.",
        lambda seen: seen.log_end - seen.log_durable,
    ),
    (
        "log_replay_bytes",
        "Bytes of the log that the next start would have to read.",
        lambda seen: seen.log_end - seen.log_checkpointed,
    ),
    (
        "log_kept_unread_bytes",
        "Size of the files of the log that are older than the retention, and kept because a "
        "consumer group has not read them.",
        lambda seen: seen.retention.kept_unread_bytes,
    ),
    (
        "unread_going_soon",
        "Consumer groups, by topic, of which a message will be removed unread before long: it has "
        "nine tenths of the age that is set for what is unread.",
        lambda seen: len(seen.retention.soon.pairs),
    ),
    (
        "timer_runs",
        "Files of delayed messages.",
        lambda seen: seen.timer_runs,
    ),
    (
        "disk_free_bytes",
        "Free space of the disk that has the data directory.",
        lambda seen: seen.disk.space.free,
    ),
    (
        "disk_total_bytes",
        "Size of the disk that has the data directory.",
        lambda seen: seen.disk.space.total,
    ),
    (
        "disk_needed_bytes",
        "Free space below which sends are refused.",
        lambda seen: seen.disk.needed_bytes,
    ),
    (
        "disk_low",
        "1 while the disk is nearly full and old messages go before their age.",
        lambda seen: seen.disk.low,
    ),
    (
        "disk_full",
        "1 while the disk is full and sends are refused.",
        lambda seen: seen.disk.full,
    ),
)


class Edges(NamedTuple):
    """What the engine does not know."""

    now_ms: int
    clients: int = 0
    receives_parked: int = 0
    transport: TransportFigures | None = None
    subscriptions_max: int = 1_000
    replication: ReplicationFigures | None = None
    background: Background | None = None


def render(engine: Engine, edges: Edges) -> Iterator[str]:
    """Yield the page in pieces, between which whoever serves it may do something else."""
    seen = engine.overview()
    yield _process()
    for rows, kind, suffix in ((COUNTERS, "counter", "_total"), (GAUGES, "gauge", "")):
        yield _families(
            (Family(f"latermq_{name}{suffix}", kind, help), float(figure(seen)))
            for name, help, figure in rows
        )
    behind = engine.schedules.behind_count(edges.now_ms)
    yield _families([(CLIENTS, edges.clients), (PARKED, edges.receives_parked), (BEHIND, behind)])
    yield _not_well(engine)
    for name, help, histogram in _histograms(seen):
        family = Family(f"latermq_{name}_seconds", "histogram", help)
        yield family.head() + histogram_lines(family.name, "", histogram)
    if edges.transport is not None:
        yield _families(_transport(edges.transport))
        yield _unusual(edges.transport.others)
    if edges.replication is not None:
        yield replication_page(edges.replication)
    if edges.background is not None:
        yield _background(edges.background)
    yield from group_page(engine, edges.now_ms, edges.subscriptions_max)


def render_standby(seen: ReplicationFigures) -> Iterator[str]:
    """Yield the page of a broker that stands by: it has no engine yet."""
    yield _process()
    yield replication_page(seen)


def _process() -> str:
    build = {"version": own_version() or "", "python": platform.python_version(),
             "compiled": str(is_compiled()).lower()}  # fmt: skip
    line = sample(BUILD.name, label_text(build), 1)
    left_out = _families([(LOG_LEFT_OUT, lines_left_out())])
    return f"{BUILD.head()}{line}{_families(process_figures())}{left_out}"


def _not_well(engine: Engine) -> str:
    troubles = engine.conditions.troubles
    return NOT_WELL.head() + "".join(
        sample(NOT_WELL.name, label_text({"part": part.value}), part in troubles) for part in Part
    )


def _families(rows: Iterable[tuple[Family, float]]) -> str:
    return "".join(family.head() + sample(family.name, "", value) for family, value in rows)


def _histograms(seen: Overview) -> Iterator[tuple[str, str, Histogram]]:
    figures = seen.figures
    yield (
        "delivery_lateness",
        "How late delayed messages came into their topics, from the time they were sent for.",
        figures.lateness_ms,
    )
    yield (
        "loop_lag",
        "How late the broker's event loop was, sampled once a second; all calls wait that long.",
        figures.loop_lag_ms,
    )
    yield "log_sync", "How long making the log safe from a power loss took.", figures.sync_ms


def _transport(seen: TransportFigures) -> Iterator[tuple[Family, float]]:
    for name, help, value in (
        (
            "calls_open",
            "Calls that are open now, waiting receives included.",
            seen.calls_open,
        ),
        (
            "connections_open",
            "Connections that are open now.",
            seen.connections_open,
        ),
        (
            "deadline_timers",
            "Open calls that wait under a deadline.",
            seen.deadline_timers,
        ),
        (
            "tasks",
            "Tasks of the broker's event loop.",
            seen.tasks,
        ),
    ):
        yield Family(f"latermq_{name}", "gauge", help), value
    yield Family("latermq_calls_total", "counter", "Calls that were begun."), seen.calls
    yield (
        Family("latermq_connections_total", "counter", "Connections that were taken."),
        seen.connections,
    )


def _background(seen: Background) -> str:
    fair, figures = seen.fair, sorted(seen.figures.items())
    kinds = [label_text({"kind": kind}) for kind, _ in figures]
    waits = [histogram_lines(BACKGROUND_WAIT.name, label, each.wait_ms)
             for label, (_, each) in zip(kinds, figures, strict=True)]  # fmt: skip
    return "".join((
        _families([
            (BACKGROUND_OPEN, fair.begun_count),
            (BACKGROUND_WAITING, fair.waiting_count),
            (BACKGROUND_REFUSED, fair.refused_count),
        ]),
        BACKGROUND_WAIT.head(), *waits,
        column(BACKGROUND_USED, kinds, (each.used_ns / 1e9 for _, each in figures)),
    ))  # fmt: skip


def _unusual(others: Mapping[tuple[str, str], int]) -> str:
    help = (
        "What did not go as usual, by kind: status (calls that ended with a gRPC error), refused "
        "(requests that never became a call), fault (connections that the broker ended), "
        "connection (connections not taken)."
    )
    family = Family("latermq_transport_events_total", "counter", help)
    return family.head() + "".join(
        sample(family.name, label_text({"kind": kind, "reason": reason}), count)
        for (kind, reason), count in sorted(others.items())
    )
