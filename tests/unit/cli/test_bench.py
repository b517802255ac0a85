"""What `latermq bench` reckons; it is run for real in the integration tests."""

import click
import pytest

from latermq_broker.cli.bench import size
from latermq_broker.cli.bench_load import Report, percentile


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert percentile(ordered, 0.5) == 50.0
    assert percentile(ordered, 0.99) == 99.0
    assert percentile(ordered, 1.0) == 100.0
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.99) == 0.0


def test_figures() -> None:
    report = Report(seconds=2.0, messages=10, calls=5, body_bytes=4_000_000)
    report.latencies.extend([0.001, 0.003])
    report.errors["busy"] += 1
    assert report.figures() == {
        "seconds": 2.0,
        "messages": 10,
        "calls": 5,
        "messages_per_second": 5.0,
        "megabytes_per_second": 2.0,
        "latency_ms": {"p50": 1.0, "p90": 3.0, "p99": 3.0, "max": 3.0},
        "errors": {"busy": 1},
    }
    report.missing = 0
    assert report.figures()["doubled"] == 0


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("512", 512), ("1k", 1024), ("2 KiB", 2048), ("4m", 4 << 20)]
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["0", "5m", "x", "-1", "1g"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        size(text)
