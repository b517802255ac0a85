"""The broker's figures as Prometheus text, version 0.0.4.

Counters begin at 0 with each start of the broker. Times are in seconds, as Prometheus wants them.
Series by consumer group and topic are as many as there are subscriptions, at most
`SUBSCRIPTIONS_MAX`; what is left out is told.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.figures import Histogram
from latermq_broker.engine.state.model import PendingFilter
from latermq_broker.engine.views.overview import Overview
from latermq_broker.observability.transport_figures import TransportFigures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SUBSCRIPTIONS_MAX: Final = 500

Sample = tuple[Mapping[str, str], float]


def render(
    engine: Engine, gauges: Mapping[str, float], transport: TransportFigures | None = None
) -> str:
    """`gauges`: what the edges know, by name without the prefix, e.g. `clients`."""
    seen = engine.overview()
    figures = seen.figures
    lines = [
        *_counters(seen),
        *_gauges(seen),
        *_waiting(engine),
        *_histogram("delivery_lateness", "a due time to its log record", figures.lateness_ms),
        *_histogram("loop_lag", "what the event loop was late, sampled", figures.loop_lag_ms),
        *_histogram("log_sync", "one sync of the log", figures.sync_ms),
    ]
    for name, value in sorted(gauges.items()):
        lines += _family(name, "gauge", "", [({}, value)])
    if transport is not None:
        lines += _transport(transport)
    return "\n".join(lines) + "\n"


def _counters(seen: Overview) -> Iterator[str]:
    figures, done, moved = seen.figures, seen.retention, seen.retention.roll_forward
    for name, help, value in (
        ("messages_sent", "messages stored, delayed ones included", figures.messages_sent),
        ("sent_bytes", "bytes of the log for them", figures.bytes_sent),
        ("messages_due", "delayed messages whose time came", figures.messages_due),
        ("messages_delivered", "leases, each attempt counted", figures.messages_delivered),
        ("messages_acknowledged", "messages acknowledged", figures.messages_acknowledged),
        ("attempts_failed", "nacks and leases that ran out", figures.attempts_failed),
        ("dead_letters", "messages that became dead letters", figures.dead_letters),
        ("messages_unreadable", "damaged messages, given up", seen.unreadable),
        ("segments_scrubbed", "old segments read and checked", seen.scrubbed.segments),
        ("records_damaged", "damaged places found by that, each time", seen.scrubbed.damages),
        ("log_records", "records appended to the log", seen.log_records),
        ("sends_refused_disk_full", "sends refused on a full disk", seen.disk.sends_refused),
        ("segments_dropped", "segments retention let go", done.segments_dropped),
        ("segments_dropped_bytes", "bytes of them", done.bytes_dropped),
        ("messages_expired", "messages that left their queues", done.entries_expired),
        ("messages_expired_unread", "the same, unread, by group", done.entries_expired_unread),
        ("messages_moved", "messages rolled forward", moved.messages_moved),
        ("moved_bytes", "bytes of them", moved.bytes_moved),
        ("segments_kept", "old segments that too much still needs", done.segments_kept),
        ("segments_dropped_early", "segments gone before their age", done.early_drops),
    ):  # fmt: skip
        yield from _family(f"{name}_total", "counter", help, [({}, value)])


def _gauges(seen: Overview) -> Iterator[str]:
    disk = seen.disk
    for name, help, value in (
        ("start_time_seconds", "since the Unix epoch", seen.opened_ms / 1_000),
        ("wall_clock_ahead_seconds", "of the broker's own time", seen.wall_ahead_ms / 1_000),
        ("topics", "", seen.topic_count),
        ("groups", "", seen.group_count),
        ("messages_delayed", "wait for their time", seen.delayed),
        ("messages_leased", "in consumers' hands", seen.leased),
        ("messages_backoff", "wait for their next attempt", seen.backoff),
        ("retries_ready", "may be received again", seen.ready_retries),
        ("half_messages", "wait for the end of their transaction", seen.half_messages),
        ("log_bytes", "of the segment files", seen.log_bytes),
        ("log_segments", "", seen.segment_count),
        ("log_unsynced_bytes", "written, not yet on disk", seen.log_end - seen.log_durable),
        ("log_replay_bytes", "a start would replay", seen.log_end - seen.log_checkpointed),
        ("timer_runs", "files of delayed messages", seen.timer_runs),
        ("disk_free_bytes", "", disk.space.free),
        ("disk_total_bytes", "", disk.space.total),
        ("disk_needed_bytes", "must be free for sends to be taken", disk.needed_bytes),
        ("disk_low", "old messages go early", disk.low),
        ("disk_full", "sends are refused", disk.full),
    ):
        yield from _family(name, "gauge", help, [({}, float(value))])


def _waiting(engine: Engine) -> Iterator[str]:
    """By kind, topic and group, from the counters that the pending view has anyway."""
    counts = engine.pending.known_counts(PendingFilter())
    samples: list[Sample] = []
    left_out = 0
    for (kind, topic, group), count in counts:
        if len(samples) < SUBSCRIPTIONS_MAX:
            labels = {"kind": kind.name.lower(), "topic": topic, "group": group}
            samples.append((labels, count))
        else:
            left_out += 1
    yield from _family("pending", "gauge", "what waits, by topic and group", samples)
    yield from _family("pending_series_left_out", "gauge", "", [({}, left_out)])


def _transport(seen: TransportFigures) -> Iterator[str]:
    for name, help, value in (
        ("calls", "open now", seen.calls_open),
        ("connections", "open now", seen.connections_open),
        ("deadline_timers", "of open calls", seen.deadline_timers),
        ("tasks", "of the event loop", seen.tasks),
    ):
        yield from _family(name, "gauge", help, [({}, value)])
    yield from _family("calls_total", "counter", "begun", [({}, seen.calls)])
    yield from _family("connections_total", "counter", "taken", [({}, seen.connections)])
    unusual: list[Sample] = [
        ({"kind": kind, "reason": reason}, count)
        for (kind, reason), count in sorted(seen.others.items())
    ]
    help = "calls with a status of ours, refused requests, faults, connections not taken"
    yield from _family("transport_events_total", "counter", help, unusual)


def _family(name: str, kind: str, help: str, samples: Iterable[Sample]) -> Iterator[str]:
    if help:
        yield f"# HELP latermq_{name} {help}"
    yield f"# TYPE latermq_{name} {kind}"
    for labels, value in samples:
        yield f"latermq_{name}{_labels(labels)} {_number(value)}"


def _histogram(name: str, help: str, histogram: Histogram) -> Iterator[str]:
    yield f"# HELP latermq_{name}_seconds {help}"
    yield f"# TYPE latermq_{name}_seconds histogram"
    count = 0
    for bound, more in zip((*histogram.bounds, None), histogram.counts, strict=True):
        count += more
        label = "+Inf" if bound is None else _number(bound / 1_000)
        yield f'latermq_{name}_seconds_bucket{{le="{label}"}} {count}'
    yield f"latermq_{name}_seconds_sum {_number(histogram.total / 1_000)}"
    yield f"latermq_{name}_seconds_count {count}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 9))
