"""The first page: what needs a person, the last hour's figures, the groups that are behind."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from latermq_console import clock
from latermq_console.drawing import charts, words
from latermq_console.reading.findings import findings
from latermq_console.reading.watch import Sample, Watch, grown, rates, thinned
from latermq_console.serving.console import View
from latermq_proto.latermq.v1 import broker_pb2, cluster_pb2
from latermq_text.durations import format_duration

FIRST_LOOK_S: Final = 1.5  # a page waits so long for figures that nobody has asked for yet
GROUPS_SHOWN: Final = 8
NAMED_PAGES: Final = ("dead", "groups")
CLUSTER_S: Final = 60.0  # a cluster has the shards it was made with


class Figure(NamedTuple):
    """A number, its line over the time that is kept, and what it means."""

    name: str
    value: str
    unit: str
    line: Markup
    note: str
    level: str = ""
    href: str = ""


async def overview(view: View) -> Response:
    """Show the overview. Raises LaterMQError: the user is none any more, or nobody answers."""
    desk, watch = view.desk, view.watch
    answer = await desk.look(desk.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest())
    await watch.ready(FIRST_LOOK_S)
    now_ms = clock.now_ms()
    states = list(watch.groups.values())
    behind = sorted(states, key=lambda s: (-s.lag, -s.in_flight - s.backoff, -s.dead, s.name))
    samples = thinned(watch.samples)
    kept_ms = samples[-1].at_ms - samples[0].at_ms if samples else 0
    return view.render(
        "overview.html",
        broker=answer.broker,
        findings=findings(watch, now_ms),
        figures=_figures(answer.broker, samples, watch),
        kept=_kept_words(kept_ms),
        groups=behind[:GROUPS_SHOWN],
        group_count=len(states),
        groups_error=watch.groups_error,
    )


async def broker(view: View) -> Response:
    """Show everything the broker tells of itself."""
    desk = view.desk
    answer = await desk.look(desk.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest())
    request = cluster_pb2.DescribeClusterRequest(endpoints=desk.admin.access_point)
    cluster, _ = await desk.tried(desk.admin.cluster.DescribeCluster, request, age_s=CLUSTER_S)
    return view.render("broker.html", broker=answer.broker, cluster=cluster)


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


def _figures(state: broker_pb2.Broker, samples: Sequence[Sample], watch: Watch) -> list[Figure]:
    def rate(name: str, title: str, note: str, kind: str = "") -> Figure:
        values = rates(samples, name)
        last = _recent(values)
        line = charts.spark(values, f"{title}, {words.rate(last)} per second now", kind)
        return Figure(title, words.rate(last), "/s", line, note)

    figures = [
        rate("sent", "Sent", f"{words.short(state.totals.messages_sent)} since the start"),
        rate("delivered", "Delivered", "each attempt counts"),
        rate("acknowledged", "Acknowledged", "done by their groups"),
        rate("failed", "Failing", "attempts that ended badly", "warn"),
    ]
    lags = [max(0, sample.lag) for sample in samples]
    known = bool(watch.groups)
    figures.append(
        Figure(
            "Lag",
            words.short(sum(each.lag for each in watch.groups.values())) if known else "-",
            "",
            charts.spark(lags, "Lag of all groups"),
            "ready and not yet received",
            href="/groups",
        )
    )
    late_ms = state.totals.lateness_p99_ms
    figures.append(
        Figure(
            "Lateness",
            format_duration(late_ms),
            "",
            charts.spark(
                [sample.lateness_ms for sample in samples], "Lateness of delayed messages"
            ),
            "99 % of delayed messages come within",
            "warn" if late_ms >= 1_000 else "",
        )
    )
    dead = sum(each.dead for each in watch.groups.values())
    deads = grown(samples, "dead")
    figures.append(
        Figure(
            "Dead letters",
            words.short(dead) if known else "-",
            "",
            charts.spark(deads, "Dead letters since then", "bad"),
            f"{words.number(deads[-1] if deads else 0)} came lately",
            "bad" if dead else "",
            "/dead",
        )
    )
    disk = state.disk
    free = disk.free_bytes / max(1, disk.total_bytes) * 100
    figures.append(
        Figure(
            "Disk free",
            f"{free:.0f}",
            "%",
            charts.spark([sample.free_percent for sample in samples], "Free part of the disk"),
            f"{words.size(disk.free_bytes)} free, the log has {words.size(state.log.bytes)}",
            "bad"
            if disk.state == broker_pb2.FULL
            else "warn"
            if disk.state == broker_pb2.LOW
            else "",
            "/broker",
        )
    )
    return figures


def _kept_words(kept_ms: int) -> str:
    """Name the stretch that the lines are of: `The last hour`, or how much of it is known yet."""
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
