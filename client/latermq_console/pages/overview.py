"""The first page: what needs a person, the last hour's figures, the groups that are behind."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from latermq_console import clock
from latermq_console.drawing import charts, words
from latermq_console.drawing.figures import Figure, figure
from latermq_console.pages.past import past_of, title_of
from latermq_console.reading.findings import findings
from latermq_console.reading.history import Lines
from latermq_console.reading.shards import Parts
from latermq_console.reading.watch import Sample, Watch, free_percent, grown, rates, thinned
from latermq_console.serving.console import View
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.durations import format_duration

FIRST_LOOK_S: Final = 1.5  # a page waits so long for figures that nobody has asked for yet
GROUPS_SHOWN: Final = 8
RATES: Final = ("sent", "delivered", "acknowledged", "failed")
NAMED_PAGES: Final = ("dead", "groups")


async def overview(view: View) -> Response:
    """Show the overview. Raises LaterMQError: the user is none any more, or nobody answers."""
    watch, request = view.watch, broker_pb2.GetBrokerRequest()
    parts = await view.shards.each(view.desk.admin.brokers.GetBroker, lambda _: request)
    await watch.ready(FIRST_LOOK_S)
    now_ms = clock.now_ms()
    states = list(watch.groups.values())
    behind = sorted(states, key=lambda s: (-s.lag, -s.in_flight - s.backoff, -s.dead, s.name))
    samples = thinned(watch.samples)
    past = await past_of(view)
    lines = past.lines if past is not None and past.lines else _lines(samples)
    return view.render(
        "overview.html",
        brokers=[answer.broker for _, answer in parts.answers],
        shards=len(parts.answers) + len(parts.unheard),
        silent=parts.silent,
        findings=findings(watch, now_ms),
        figures=_figures(parts, samples, lines, watch),
        kept=title_of(past, _kept_words(samples)),
        past=past,
        groups=behind[:GROUPS_SHOWN],
        group_count=len(states),
        groups_error=watch.groups_error,
    )


async def broker(view: View) -> Response:
    """Show everything a broker tells of itself: the console's own, or that of a shard."""
    desks = await view.shards.desks()
    _, desk = await view.whose(f"@{view.asked('shard')}")
    answer = await desk.look(desk.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest())
    shown = next((shard for shard, each in desks.items() if each is desk), 0)
    return view.render("broker.html", broker=answer.broker, shards=list(desks), shown=shown)


async def jump(view: View) -> Response:
    """Go where a text typed into the search leads: a group, a topic, else messages."""
    wanted = view.asked("q")
    if not wanted:
        return view.go("/messages")
    if view.asked("to") in NAMED_PAGES:  # by whoever may not list groups
        return view.go(f"/{view.asked('to')}/{quote(wanted, safe='')}")
    if wanted in view.watch.groups:
        return view.go(f"/groups/{quote(wanted, safe='')}")
    if len(wanted) >= 32 and all(ch in "0123456789abcdefABCDEF" for ch in wanted):
        return view.go(f"/messages/{quote(wanted, safe='')}")
    return view.go(f"/messages?q={quote(wanted, safe='')}")


def _lines(samples: Sequence[Sample]) -> Lines:
    """Return what the console itself remembers, as a Prometheus would tell it."""
    return {
        **{name: [*rates(samples, name)] for name in RATES},
        "lag": [max(0, sample.lag) for sample in samples],
        "lateness_ms": [sample.lateness_ms for sample in samples],
        "dead": [*grown(samples, "dead")],
        "free_percent": [sample.free_percent for sample in samples],
    }


def _figures(parts: Parts, samples: Sequence[Sample], lines: Lines, watch: Watch) -> list[Figure]:
    """Return the figures of all shards that answer; the disk is that with the least room."""
    brokers = {shard: answer.broker for shard, answer in parts.answers}

    def rate(name: str, title: str, note: str, kind: str = "") -> Figure:
        now = words.rate(_recent(rates(samples, name)))
        return figure(title, now, lines.get(name, []), words.rate, note, unit="/s", kind=kind)

    known = bool(watch.groups)  # or this user is not told of groups
    late_ms = max(each.totals.lateness_p99_ms for each in brokers.values())
    lag = sum(each.lag for each in watch.groups.values())
    dead = sum(each.dead for each in watch.groups.values())
    died = grown(samples, "dead")
    sent = sum(each.totals.messages_sent for each in brokers.values())
    shard = max(brokers, key=lambda n: (brokers[n].disk.state, -free_percent(brokers[n].disk)))
    disk, log = brokers[shard].disk, brokers[shard].log
    of = f" of shard {shard}" if parts.several else ""
    return [
        rate("sent", "Sent", f"{words.short(sent)} since the start"),
        rate("delivered", "Delivered", "each attempt counts"),
        rate("acknowledged", "Acknowledged", "done by their groups"),
        rate("failed", "Failing", "attempts that ended badly", "warn"),
        figure(
            "Lag",
            words.short(lag) if known else "-",
            [*lines.get("lag", []), lag] if known else [],
            words.short,
            "ready and not yet received",
            href="/groups",
        ),
        figure(
            "Lateness",
            format_duration(late_ms),
            lines.get("lateness_ms", []),
            format_duration,
            "99 % of delayed messages come within",
            level="warn" if late_ms >= 1_000 else "",
        ),
        figure(
            "Dead letters",
            words.short(dead) if known else "-",
            lines.get("dead", []) if known else [],
            None,
            f"{words.number(died[-1] if died else 0)} came lately",
            kind="bad",
            level="bad" if dead else "",
            href="/dead",
        ),
        Figure(
            "Disk free",
            f"{free_percent(disk):.0f}",
            "%",
            charts.spark(lines.get("free_percent", []), "Free part of the disk"),
            f"{words.size(disk.free_bytes)} free, the log{of} has {words.size(log.bytes)}",
            {broker_pb2.FULL: "bad", broker_pb2.LOW: "warn"}.get(disk.state, ""),
            f"/broker?shard={shard}" if parts.several else "/broker",
        ),
    ]


def _kept_words(samples: Sequence[Sample]) -> str:
    """Name the stretch that is remembered: `The last hour`, or how much of it is known yet."""
    kept_ms = samples[-1].at_ms - samples[0].at_ms if samples else 0
    if kept_ms >= 3_540_000:
        return "The last hour"
    return f"The last {format_duration(kept_ms)}" if kept_ms >= 1_000 else "Now"


def _recent(values: Sequence[float]) -> float:
    """Return what is going on now: the mean of the last few points."""
    last = values[-3:]
    return sum(last) / len(last) if last else 0.0


async def nowhere(view: View) -> Response:
    """Answer an address that is none."""
    return view.console.error(view, 404, "Not there", "The console has no such page.")
