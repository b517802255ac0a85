"""Figures of longer than the console remembers: a Prometheus is asked, seldom and for little.

A page's lines are one question, of one series for each line and POINTS points for each series. What
it answered is remembered and shared by all who look; one that is silent is left alone for a while.
"""

import asyncio
import json
import math
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any, Final, NamedTuple

import httpx

from latermq_console import clock

RANGES: Final = {"1h": 3_600, "6h": 6 * 3_600, "24h": 24 * 3_600, "7d": 7 * 24 * 3_600}
POINTS: Final = 120
RATE_S_MIN: Final = 300  # as in the shipped alerts: some scrapes, whatever their interval
PEAK_S_MIN: Final = 120
ANSWER_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 << 20
WORDS_MAX: Final = 200  # of its reason to refuse
PAGE_S: Final = 1.5  # a page waits so long; what comes later is on the next look
FRESH_S: Final = 15.0
KEPT_MAX: Final = 64
AT_ONCE: Final = 4

START: Final = "latermq_start_time_seconds"
Lines = dict[str, list[float | None]]


def _rate(counter: str) -> str:
    return f"sum(rate(latermq_{counter}_total{{$of}}[$rate]))"


def _peak(gauge: str, over: str = "sum") -> str:
    """Take the highest of each point's stretch: between two points of a week no peak is lost."""
    return f"{over}(max_over_time(latermq_{gauge}{{$of}}[$peak]))"


def _p99_ms(histogram: str) -> str:
    buckets = f"sum by (le) (rate(latermq_{histogram}_seconds_bucket{{$of}}[$rate]))"
    return f"histogram_quantile(0.99, {buckets}) * 1000"


_LAG: Final = f"{_peak('group_ready_messages')} + ({_peak('group_held_messages')} or vector(0))"
OF_BROKER: Final = {
    "sent": _rate("messages_sent"),
    "delivered": _rate("messages_delivered"),
    "acknowledged": _rate("messages_acknowledged"),
    "failed": _rate("attempts_failed"),
    "lag": _LAG,
    "lateness_ms": _p99_ms("delivery_lateness"),
    "dead": _peak("group_dead_letters_left"),
    "free_percent": "100 * min(latermq_disk_free_bytes{$of} / latermq_disk_total_bytes{$of})",
}
OF_GROUP: Final = {
    "lag": _LAG,
    "oldest_ms": _peak("group_oldest_unread_seconds", "max") + " * 1000",
    "delivered": _rate("group_deliveries"),
    "acknowledged": _rate("group_acks"),
    "failed": _rate("group_failures"),
    "lateness_ms": _p99_ms("group_send_to_ack"),
    "dead": _peak("group_dead_letters_left"),
}


def _selector(label: str, values: set[str]) -> str:
    if len(values) == 1:
        return f"{label}={_quoted(*values)}"
    return f"{label}=~{_quoted('|'.join(map(re.escape, sorted(values))))}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class HistoryError(Exception):
    """Prometheus gave no lines; the text says why."""


class Past(NamedTuple):
    """A stretch of the past; `problem` is why there are no lines, or none that are new."""

    range: str
    lines: Lines
    problem: str
    coming: bool  # it has not answered yet


@dataclass(slots=True)
class _Kept:
    lines: Lines = field(default_factory=dict)
    problem: str = ""
    at_s: float = -math.inf
    work: asyncio.Task[None] | None = None


class History:
    """Made inside a running loop; to be closed."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._client = httpx.AsyncClient(timeout=ANSWER_S)
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._own: dict[int, dict[str, str]] = {}  # labels of each shard's series

    async def past(self, range: str, started: Mapping[int, int], group: str = "") -> Past:
        """Return the lines of all shards together, or those of one group.

        Args:
            started: when each shard that answers did, in milliseconds; one who is silent has the
                series that it had.
        """
        kept = self._kept.setdefault((range, group), _Kept())
        self._kept.move_to_end((range, group))
        while len(self._kept) > KEPT_MAX:
            _, oldest = self._kept.popitem(last=False)
            if oldest.work is not None:
                oldest.work.cancel()
        if kept.work is None and clock.monotonic_s() - kept.at_s >= FRESH_S:
            kept.work = asyncio.ensure_future(self._read(kept, range, started, group))
        if kept.work is not None and not kept.lines and not kept.problem:
            await asyncio.wait((kept.work,), timeout=PAGE_S)
        coming = not kept.lines and not kept.problem and kept.work is not None
        return Past(range, kept.lines, kept.problem, coming)

    async def close(self) -> None:
        work = [kept.work for kept in self._kept.values() if kept.work is not None]
        for task in work:
            task.cancel()
        if work:
            await asyncio.wait(work)
        await self._client.aclose()

    async def _read(self, kept: _Kept, range: str, started: Mapping[int, int], group: str) -> None:
        try:
            async with self._turn, asyncio.timeout(ANSWER_S):
                of = await self._series_of(started)
                if group:
                    of += f",group={_quoted(group)}"
                kept.lines = await self._lines(OF_GROUP if group else OF_BROKER, of, RANGES[range])
            kept.problem = ""
        except HistoryError as error:
            kept.problem = str(error)
        except TimeoutError:
            kept.problem = f"it did not answer within {ANSWER_S:.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            kept.problem = str(error) or type(error).__name__
        finally:
            kept.at_s = clock.monotonic_s()
            kept.work = None

    async def _series_of(self, started: Mapping[int, int]) -> str:
        """Find what tells the shards' series from others': when each started is its own.

        Of one that has just started again, and was not scraped since, they are those it had.

        Raises:
            HistoryError: it has none of one of them.
        """
        for series in await self._ask("query", {"query": START}):
            labels, at_ms = series["metric"], round(float(series["value"][1]) * 1_000)
            for shard, started_at_ms in started.items():
                if (at_ms, labels.get("shard", str(shard))) == (started_at_ms, str(shard)):
                    self._own[shard] = {name: labels.get(name, "") for name in ("job", "instance")}
        unknown = started.keys() - self._own.keys()
        if unknown:
            of = f"of shard {min(unknown)}" if len(started) > 1 else "of this broker"
            raise HistoryError(f"it has no figures {of}: does it scrape its /metrics?")
        return ",".join(
            _selector(name, {labels[name] for labels in self._own.values()})
            for name in ("job", "instance")
        )

    async def _lines(self, wanted: Mapping[str, str], of: str, range_s: int) -> Lines:
        step_s = range_s // POINTS
        values = {
            "of": of, "rate": f"{max(step_s, RATE_S_MIN)}s", "peak": f"{max(step_s, PEAK_S_MIN)}s"
        }  # fmt: skip
        query = " or ".join(
            f'label_replace({Template(text).substitute(values)}, "line", "{name}", "", "")'
            for name, text in wanted.items()
        )
        end_s = clock.now_ms() / 1_000
        start_s = end_s - range_s
        answer = await self._ask(
            "query_range", {"query": query, "start": start_s, "end": end_s, "step": step_s}
        )
        lines: Lines = {}
        for series in answer:
            line = lines.setdefault(series["metric"]["line"], [None] * (POINTS + 1))
            for at_s, text in series["values"]:
                value, place = float(text), round((at_s - start_s) / step_s)
                if math.isfinite(value) and 0 <= place <= POINTS:
                    line[place] = value
        if not lines:
            raise HistoryError("it has no figures of this stretch")
        return lines

    async def _ask(self, what: str, fields: Mapping[str, Any]) -> list[Any]:
        """Raises HistoryError, httpx.HTTPError, httpx.InvalidURL: no answer, or another's."""
        data = bytearray()
        form = {**fields, "timeout": f"{ANSWER_S:.0f}s"}
        async with self._client.stream("POST", f"{self._url}/api/v1/{what}", data=form) as answer:
            async for piece in answer.aiter_bytes():
                data += piece
                if len(data) > ANSWER_BYTES_MAX:
                    raise HistoryError("it answers with more than was asked for")
        try:
            said = json.loads(data)
            if said["status"] == "success":
                return list(said["data"]["result"])
            raise HistoryError(f"it refuses: {str(said['error'])[:WORDS_MAX]}")
        except (ValueError, KeyError, TypeError):
            raise HistoryError(
                f"it answers {answer.status_code}, not as a Prometheus does"
            ) from None
