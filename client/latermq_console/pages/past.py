"""The stretch of the past that a page shows: the console's own hour, or more of a Prometheus."""

from typing import Final

from latermq_console.reading.history import RANGES, Past
from latermq_console.serving.console import FormError, View
from latermq_proto.latermq.v1 import broker_pb2

TITLES: Final = {
    "1h": "The last hour", "6h": "The last 6 hours", "24h": "The last 24 hours",
    "7d": "The last 7 days",
}  # fmt: skip


async def past_of(view: View, group: str = "") -> Past | None:
    """Return what Prometheus tells of the stretch that is asked for; None: the console has none.

    Raises:
        FormError: there is no such stretch.
        LaterMQError: no shard answers.
    """
    history, range = view.console.history, view.asked("range") or next(iter(RANGES))
    if range not in RANGES:
        raise FormError(f"the range is one of {', '.join(RANGES)}")
    if history is None:
        return None
    request = broker_pb2.GetBrokerRequest()
    parts = await view.shards.each(view.desk.admin.brokers.GetBroker, lambda _: request)
    started = {shard: answer.broker.started_at_ms for shard, answer in parts.answers}
    return await history.past(range, started, group)


def title_of(past: Past | None, own: str) -> str:
    """Name the stretch whose lines are shown: `own` where they are the console's."""
    return TITLES[past.range] if past is not None and past.lines else own
