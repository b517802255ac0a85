"""What needs a person first: conclusions from a watch, the worst first. Pure."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from latermq_console.drawing.links import segment
from latermq_console.drawing.words import counted, rate, size
from latermq_console.reading.watch import GroupState, Watch
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.durations import format_duration

LATE_MS: Final = 1_000
LOOP_LAG_MS: Final = 250
NAMED_MAX: Final = 5
GROWING_SAMPLES: Final = 12  # a lag that has only grown for so many looks is stuck
IDLE_MS: Final = 120_000  # so long may the oldest wait while nothing is done
HUNG_MS: Final = 900_000  # so long may consumers hold messages of which none ends, as in the alert


class Finding(NamedTuple):
    """level: bad or warn."""

    level: str
    title: str
    detail: str
    href: str
    action: str


def findings(watch: Watch, now_ms: int) -> list[Finding]:
    """Return what is wrong, as far as the watch's user may see it."""
    wrong: list[Finding] = []
    for shard, broker in watch.brokers.items():
        if watch.several:
            wrong += _of_broker(broker, f" of shard {shard}", f"/broker?shard={shard}")
        else:
            wrong += _of_broker(broker, "", "/broker")
    wrong += _of_groups(watch, now_ms)
    return sorted(wrong, key=lambda finding: finding.level != "bad")


def _of_broker(broker: broker_pb2.Broker, of: str, href: str) -> Iterator[Finding]:
    """Say what is wrong with one; `of` names it where there are several."""
    disk, totals = broker.disk, broker.totals
    free = f"{size(disk.free_bytes)} of {size(disk.total_bytes)} are free"
    if disk.state == broker_pb2.FULL:
        title = f"The disk{of} is full: sends are refused"
        yield Finding("bad", title, f"{free}; {size(disk.needed_bytes)} are needed.", href, "Disk")
    elif disk.state == broker_pb2.LOW:
        title = f"The disk{of} is nearly full: old messages go before their age"
        yield Finding("warn", title, f"{free}.", href, "Disk")
    if totals.lateness_p99_ms >= LATE_MS:
        late = format_duration(totals.lateness_p99_ms)
        title = f"Delayed messages{of} come up to {late} late"
        said = "The 99th percentile of the last five minutes."
        yield Finding("warn", title, said, href, "Broker")
    if totals.loop_lag_p99_ms >= LOOP_LAG_MS:
        late = format_duration(totals.loop_lag_p99_ms)
        title = f"The broker{of} answers up to {late} late"
        said = "Its loop was busy in the last five minutes: more load than its core can do."
        yield Finding("warn", title, said, href, "Broker")
    if totals.messages_unreadable:
        title = f"{counted(totals.messages_unreadable, 'message')}{of} could not be read"
        yield Finding("warn", title, "Damaged on disk, and given up.", href, "Broker")


def _of_groups(watch: Watch, now_ms: int) -> Iterator[Finding]:
    states = list(watch.groups.values())
    dying = sorted((s for s in states if s.died_lately), key=lambda s: -s.died_lately)
    for state in dying[:NAMED_MAX]:
        yield Finding(
            "bad",
            f"{counted(state.died_lately, 'message')} died in {state.name} lately",
            f"{counted(state.dead, 'dead letter')} in all.",
            f"/dead/{segment(state.name)}",
            "See why",
        )
    quiet = [s for s in states if s.dead and not s.died_lately]
    if quiet:
        count = sum(state.dead for state in quiet)
        names = ", ".join(s.name for s in sorted(quiet, key=lambda s: -s.dead)[:3])
        more = f" and {len(quiet) - 3} more" if len(quiet) > 3 else ""
        yield Finding(
            "warn",
            f"{counted(count, 'dead letter')} wait for a decision",
            f"In {names}{more}.",
            "/dead",
            "Dead letters",
        )
    for state in [s for s in states if s.parked][:NAMED_MAX]:
        yield Finding(
            "bad",
            f"{counted(state.parked, 'message group')} of {state.name} stand still",
            "Parked behind dead letters, until those are redriven or dropped.",
            f"/groups/{segment(state.name)}",
            "See which",
        )
    stuck = sorted((s for s in states if _is_stuck(s, now_ms)), key=lambda s: -s.lag)
    for state in stuck[:NAMED_MAX]:
        yield Finding(
            "bad",
            f"{state.name} falls behind: {counted(state.lag, 'message')} ready",
            _last_words(state, now_ms),
            f"/groups/{segment(state.name)}",
            "See the group",
        )
    hung = [s for s in states if s not in stuck and _is_hung(s, now_ms)]
    for state in sorted(hung, key=lambda s: s.hung_since_ms)[:NAMED_MAX]:
        since = format_duration(now_ms - state.hung_since_ms)
        yield Finding(
            "warn",
            f"Consumers of {state.name} hold {counted(state.in_flight, 'message')} and finish none",
            f"None was acknowledged and none failed for {since}.",
            f"/groups/{segment(state.name)}",
            "See who holds",
        )
    for state in [s for s in states if s.unequal][:NAMED_MAX]:
        yield Finding(
            "warn",
            f"Consumers of {state.name} filter {state.unequal[0]} differently",
            "Each gets what it wants, and a slow one holds the others up.",
            f"/groups/{segment(state.name)}",
            "See the filters",
        )


def _is_stuck(state: GroupState, now_ms: int) -> bool:
    """Tell whether there is work that nobody does, or ever more of it."""
    if not state.lag:
        return False
    if _idle(state, now_ms):
        return True
    lags = list(state.lags)[-GROWING_SAMPLES:]
    growing = all(before <= after for before, after in pairwise(lags))
    return len(lags) >= GROWING_SAMPLES and growing and lags[-1] > lags[0]


def _is_hung(state: GroupState, now_ms: int) -> bool:
    return 0 < state.hung_since_ms <= now_ms - HUNG_MS


def _idle(state: GroupState, now_ms: int) -> bool:
    progress = state.group.progress
    waited_ms = now_ms - progress.oldest_unread_at_ms if progress.oldest_unread_at_ms else 0
    return waited_ms >= IDLE_MS and not progress.out_per_s


def _last_words(state: GroupState, now_ms: int) -> str:
    progress = state.group.progress
    if _idle(state, now_ms):
        waited = format_duration(now_ms - progress.oldest_unread_at_ms)
        return f"Nothing was acknowledged in the last minute; the oldest waits for {waited}."
    return (
        f"{rate(progress.in_per_s)} come each second and {rate(progress.out_per_s)} are done: "
        "consumers are too few or too slow."
    )
