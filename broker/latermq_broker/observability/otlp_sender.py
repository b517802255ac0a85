"""The process that turns pages of metrics into OTLP and posts them: `python -m`, by `otlp_export`.

    stdin: pages, framed    stdout: a line for each, "" or why it was not taken

It ends with its standard input. Names, labels, help and buckets are as on the page; the exporter
takes headers, compression and certificates from OpenTelemetry's own variables (OTEL_EXPORTER_…).
"""

import logging
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from latermq_broker.clock import SystemClock
from latermq_broker.observability.otlp_frame import read_page
from latermq_text.version import own_version

SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
ESCAPED: Final = re.compile(r"\\(.)")
SERVICE: Final = "latermq"
STARTED: Final = "latermq_start_time_seconds"
TIMEOUT_S: Final = 10
UNKNOWN: Final[Any] = None
CUMULATIVE: Final = points.AggregationTemporality.CUMULATIVE

Sample = tuple[str, dict[str, str], float]


def url_of(otlp: str) -> str:
    """Return where to post: a URL without a path is a collector's, which has it at /v1/metrics."""
    return otlp if urlsplit(otlp).path.strip("/") else f"{otlp.rstrip('/')}/v1/metrics"


def metrics_of(page: str, now_ns: int) -> list[Any]:
    """Return what a page says, as OpenTelemetry's metrics."""
    families = list(_families(page))
    started_ns = next(
        (int(samples[0][2] * 1e9) for name, _, _, samples in families if name == STARTED), 0
    )
    made = []
    for name, kind, help, samples in families:
        if kind == "histogram":
            data: Any = points.Histogram(list(_histograms(samples, started_ns, now_ns)), CUMULATIVE)
        else:
            start_ns = started_ns if kind == "counter" else 0
            numbers = [
                points.NumberDataPoint(labels, start_ns, now_ns, _number(value))
                for _, labels, value in samples
            ]
            data = (
                points.Sum(numbers, CUMULATIVE, is_monotonic=True)
                if kind == "counter"
                else points.Gauge(numbers)
            )
        if data.data_points:
            unit = "s" if "_seconds" in name else "By" if "_bytes" in name else "1"
            made.append(points.Metric(name, help, unit, data))
    return made


def _families(page: str) -> Iterator[tuple[str, str, str, list[Sample]]]:
    """Yield name, kind, help and samples of each family."""
    name = kind = help = ""
    samples: list[Sample] = []
    for line in page.splitlines():
        if line.startswith("# HELP "):
            if name:
                yield name, kind, help, samples
            _, _, name, help = line.split(" ", 3)
            samples = []
        elif line.startswith("# TYPE "):
            kind = line.rpartition(" ")[2]
        elif match := SAMPLE.fullmatch(line):
            labels = {key: _plain(text) for key, text in LABEL.findall(match[2] or "")}
            samples.append((match[1], labels, float(match[3])))
    if name:
        yield name, kind, help, samples


def _histograms(samples: Iterable[Sample], started_ns: int, now_ns: int) -> Iterator[Any]:
    """Yield the histograms of a family: each has its buckets, its sum, and its count at last."""
    bounds: list[float] = []
    counts: list[int] = []
    total = 0.0
    for name, labels, value in samples:
        if name.endswith("_bucket"):
            bounds.append(float(labels["le"]))
            counts.append(int(value))
        elif name.endswith("_sum"):
            total = value
        else:
            each = [more - less for less, more in zip([0, *counts], counts, strict=False)]
            yield points.HistogramDataPoint(
                labels, started_ns, now_ns, int(value), total, each, bounds[:-1],
                UNKNOWN, UNKNOWN,  # the least and the largest
            )  # fmt: skip
            bounds, counts = [], []


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _plain(text: str) -> str:
    return ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


class _Reasons(logging.Handler):
    """Keeps what the exporter says of its failures."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())


def resource_of(name: str) -> Mapping[str, str]:
    return {
        "service.name": SERVICE,
        "service.instance.id": name,
        "service.version": own_version() or "",
    }


def main(otlp: str, name: str) -> None:
    """Send what comes until nothing more does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the broker ends this process
    reasons = _Reasons()
    logging.getLogger("opentelemetry").addHandler(reasons)
    logging.getLogger("opentelemetry").propagate = False
    exporter = OTLPMetricExporter(endpoint=url_of(otlp), timeout=TIMEOUT_S)
    clock = SystemClock()
    resource = Resource.create(resource_of(name))
    scope = InstrumentationScope(SERVICE, own_version() or "")
    while (page := read_page(sys.stdin.buffer)) is not None:
        reasons.last = ""
        made = metrics_of(page.decode(), clock.now_ms() * 1_000_000)
        group = points.ResourceMetrics(resource, [points.ScopeMetrics(scope, made, "")], "")
        result = exporter.export(points.MetricsData([group]))
        taken = result is points.MetricExportResult.SUCCESS
        print("" if taken else reasons.last or "it was not taken", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
