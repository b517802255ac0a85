"""Series by topic, and by consumer group and topic: where messages wait, and who is behind.

Gauges are of the state, which a restart restores; counters and histograms begin anew with a start,
but for `latermq_topic_messages_total`, which is of the log.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.figures import Histogram
from latermq_broker.engine.state.group_flow import Flow
from latermq_broker.engine.state.model import PendingFilter, PendingKind
from latermq_broker.engine.views.watched import Watched, WatchedPair
from latermq_broker.observability.exposition import (
    Family,
    column,
    histogram_lines,
    label_text,
    sample,
)

PAIRS_AT_ONCE: Final = 50  # looked at in one turn of the loop
LINES_AT_ONCE: Final = 200

READY: Final = Family(
    "latermq_group_ready_messages", "gauge",
    "Messages of a topic that a consumer group may receive now: never given to it yet, or ready "
    "for their next attempt, and behind no blocked message group.",
)  # fmt: skip
HELD: Final = Family(
    "latermq_group_held_messages", "gauge",
    "Messages of a topic that a consumer group may not receive yet, as their message group or lite "
    "topic is blocked: a consumer holds another of its messages, or that one waits for its next "
    "attempt, or is a dead letter that parks it. Ready and held together are the group's lag.",
)  # fmt: skip
OLDEST: Final = Family(
    "latermq_group_oldest_unread_seconds", "gauge",
    "How long the oldest message that a consumer group was never given has been in its topic; "
    "0 when there is none. Of a delayed message, since it came due.",
)  # fmt: skip
PAIR_GAUGES: Final = (
    (READY, lambda pair, now_ms: pair.lag.ready_count),
    (HELD, lambda pair, now_ms: pair.lag.held_count),
    (OLDEST, lambda pair, now_ms: _age_s(pair, now_ms)),
    (
        Family(
            "latermq_group_in_flight_messages", "gauge",
            "Messages that consumers of a group hold now: delivered, and neither acknowledged nor "
            "failed.",
        ),
        lambda pair, now_ms: pair.in_flight,
    ),
    (
        Family(
            "latermq_group_backoff_messages", "gauge",
            "Messages that failed in a consumer group and wait for their next attempt.",
        ),
        lambda pair, now_ms: pair.backoff,
    ),
)  # fmt: skip
PAIR_COUNTERS: Final[tuple[tuple[Family, Callable[[Flow], int]], ...]] = (
    (
        Family(
            "latermq_group_deliveries_total", "counter",
            "Messages given to consumers of a group, each attempt counted, since the start.",
        ),
        lambda flow: flow.delivered,
    ),
    (
        Family(
            "latermq_group_acks_total", "counter",
            "Messages that consumers of a group acknowledged, since the start.",
        ),
        lambda flow: flow.acked,
    ),
    (
        Family(
            "latermq_group_attempts_failed_total", "counter",
            "Attempts that failed in a consumer group, of every class, since the start.",
        ),
        lambda flow: flow.failed,
    ),
    (
        Family(
            "latermq_group_dead_letters_total", "counter",
            "Messages of a topic that became dead letters of a consumer group, since the start.",
        ),
        lambda flow: flow.dead,
    ),
    (
        Family(
            "latermq_group_redriven_total", "counter",
            "Dead letters given back to their consumer group by a redrive, since the start.",
        ),
        lambda flow: flow.redriven,
    ),
    (
        Family(
            "latermq_group_expired_unread_total", "counter",
            "Messages that retention removed before a consumer group was given them, since the "
            "start: lost for that group.",
        ),
        lambda flow: flow.expired_unread,
    ),
)  # fmt: skip
FAILURES: Final = Family(
    "latermq_group_failures_total", "counter",
    "Attempts that failed in a consumer group since the start, by the class of failure that the "
    "consumer told; lease_expired: nobody acknowledged in time, client_gone: the consumer left or "
    "its connection broke, not_told: no reason was given, other: all classes beyond the eight that "
    "are frequent lately in that group and topic. A class that becomes rare may lose its series, "
    "and begins at 0 when it is back.",
)  # fmt: skip
ATTEMPTS: Final = Family(
    "latermq_group_attempt_seconds", "histogram",
    "How long consumers of a group took for an attempt, from the delivery to its acknowledgement "
    "or failure.",
)  # fmt: skip
TO_ACK: Final = Family(
    "latermq_group_send_to_ack_seconds", "histogram",
    "How long messages took from coming into their topic (sent, or due if they were delayed) to "
    "the acknowledgement by a consumer group, all attempts and waits included. What is "
    "acknowledged in one call counts with the age of its first message.",
)  # fmt: skip
LETTERS: Final = Family(
    "latermq_group_dead_letters_left", "gauge",
    "Dead letters of a consumer group that somebody has to look at: neither redriven nor dropped.",
)  # fmt: skip
ENTERED: Final = Family(
    "latermq_topic_messages_total", "counter",
    "Messages that ever came into a topic: sent, or due if they were delayed. Goes on counting "
    "after a restart.",
)  # fmt: skip
STORED: Final = Family(
    "latermq_topic_stored_messages", "gauge",
    "Messages of a topic that the broker still has, read or not.",
)  # fmt: skip
PENDING: Final = Family(
    "latermq_pending", "gauge",
    "Messages that wait, by kind: delayed and half (open transaction) by topic; backoff (failed, "
    "its wait over or not) and in_flight by topic and consumer group. No series: none.",
)  # fmt: skip
LEFT_OUT: Final = Family(
    "latermq_series_left_out", "gauge",
    "Topics, consumer groups with dead letters, and groups on topics that have no series of their "
    "own because metrics.subscriptions_max were there before.",
)  # fmt: skip
LEFT_OUT_BEFORE: Final = Family(
    "latermq_pending_series_left_out", "gauge",
    "Consumer groups on topics without series of their own; see latermq_series_left_out.",
)  # fmt: skip


def group_page(engine: Engine, now_ms: int, subscriptions_max: int) -> Iterator[str]:
    """Yield the text piece by piece, each a short work; families stay whole in sequence."""
    pairs: list[WatchedPair] = []
    for pair in engine.watched.pairs(subscriptions_max):
        pairs.append(pair)
        if len(pairs) % PAIRS_AT_ONCE == 0:
            yield ""
    labels = [label_text({"group": pair.group, "topic": pair.topic}) for pair in pairs]
    for family, gauge in PAIR_GAUGES:
        values = [gauge(pair, now_ms) for pair in pairs]
        yield column(family, labels, values)
    flows = [pair.flow or _STILL for pair in pairs]
    for family, count in PAIR_COUNTERS:
        yield column(family, labels, map(count, flows))
    yield from _failures(labels, flows)
    moving = [(each, flow) for each, flow in zip(labels, flows, strict=True) if flow is not _STILL]
    for family, histogram in ((ATTEMPTS, _attempt_ms), (TO_ACK, _to_ack_ms)):
        yield family.head()
        for at in range(0, len(moving), PAIRS_AT_ONCE):
            yield "".join(
                histogram_lines(family.name, each, histogram(flow))
                for each, flow in moving[at : at + PAIRS_AT_ONCE]
            )
    yield from _topics(engine.watched, subscriptions_max)
    yield from _waiting(engine, pairs, subscriptions_max)


def _age_s(pair: WatchedPair, now_ms: int) -> float:
    oldest_ms = pair.lag.oldest_ms
    return max(0, now_ms - oldest_ms) / 1_000 if oldest_ms else 0.0


def _attempt_ms(flow: Flow) -> Histogram:
    return flow.attempt_ms


def _to_ack_ms(flow: Flow) -> Histogram:
    return flow.to_ack_ms


def _failures(labels: list[str], flows: list[Flow]) -> Iterator[str]:
    yield FAILURES.head()
    lines = [
        sample(FAILURES.name, f"{each},{label_text({'class': name})}", count)
        for each, flow in zip(labels, flows, strict=True)
        for name, count in flow.failures.counts.items()
    ]
    for at in range(0, len(lines), LINES_AT_ONCE):
        yield "".join(lines[at : at + LINES_AT_ONCE])


def _topics(watched: Watched, count_max: int) -> Iterator[str]:
    topics = watched.topics(count_max)
    labels = [label_text({"topic": topic.topic}) for topic in topics]
    yield column(ENTERED, labels, [t.entered for t in topics])
    yield column(STORED, labels, [t.stored for t in topics])
    groups = watched.groups(count_max)
    labels = [label_text({"group": group.group}) for group in groups]
    yield column(LETTERS, labels, [g.dead_letters for g in groups])
    left_out = {
        "subscriptions": watched.pairs_left_out,
        "topics": watched.topics_left_out,
        "groups": watched.groups_left_out,
    }
    labels = [label_text({"of": of}) for of in left_out]
    yield column(LEFT_OUT, labels, left_out.values())
    yield LEFT_OUT_BEFORE.head() + sample(LEFT_OUT_BEFORE.name, "", watched.pairs_left_out)


def _waiting(engine: Engine, pairs: list[WatchedPair], count_max: int) -> Iterator[str]:
    """Yield what waits by kind, from counters that are there anyway."""
    labels: list[str] = []
    values: list[int] = []
    for kind in (PendingKind.DELAYED, PendingKind.HALF):
        for known in islice(engine.pending.known_counts(PendingFilter(kind=kind)), count_max):
            labels.append(_pending_labels(kind, known.topic, ""))
            values.append(known.count)
    for pair in pairs:
        backoff = pair.backoff + pair.retries_ready
        for kind, count in (
            (PendingKind.BACKOFF, backoff),
            (PendingKind.IN_FLIGHT, pair.in_flight),
        ):
            if count:
                labels.append(_pending_labels(kind, pair.topic, pair.group))
                values.append(count)
    yield column(PENDING, labels, values)


def _pending_labels(kind: PendingKind, topic: str, group: str) -> str:
    return label_text({"kind": kind.name.lower(), "topic": topic, "group": group})


_STILL: Final = Flow()
