"""What `latermq bench` reckons; it is run for real in the integration tests."""

from collections import Counter

import click
import pytest

from latermq._connection.status import error_of
from latermq._values.endpoints import Endpoints
from latermq_cli.bench.bench import size
from latermq_cli.bench.bench_load import Report, percentile
from latermq_cli.connection.connection import call_failed
from latermq_cli.connection.credentials import Access
from latermq_h2.grpc_code import GrpcCode
from support.cli_rig import CliRig


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert percentile(ordered, 0.5) == 50.0
    assert percentile(ordered, 0.99) == 99.0
    assert percentile(ordered, 1.0) == 100.0
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.99) == 0.0


def said(report: Report) -> tuple[int, str]:
    """Exit code and sentence."""
    failure = report.failure()
    assert failure is not None
    return failure.exit_code, failure.message


def test_a_run_in_which_something_failed_has_failed() -> None:
    report = Report(messages=10, calls=10)
    assert report.failure() is None
    report.missing = 3
    assert said(report) == (1, "3 messages sent and not received within 10 s")
    report.errors.update({"topic not found: x": 1, "the broker did not answer": 1_204})
    assert said(report) == (1, "1,205 calls failed: the broker did not answer")
    lone = Report(errors=Counter({"busy": 1}))
    assert said(lone) == (1, "1 call failed: busy")
    wrong = Report(errors=Counter({"group is blank": 2}), refusals=2)
    assert said(wrong) == (2, "2 calls failed: group is blank")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("send --duration 0s", "'0s': a run takes 1ms to 7d"),
        ("receive --duration 8d", "'8d': a run takes 1ms to 7d"),
        ("roundtrip --rate 0", "0 is not in the range 1<=x<=1000000"),
        ("send --rate 99999999999999999999", "is not in the range 1<=x<=1000000"),
        ("send --batch 100 --size 4m", "more than 67108864 bytes a call"),
        ("send --concurrency 10000 --size 1m", "more than 1073741824 bytes at a time"),
    ],
)
def test_what_is_no_load(monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    rig = CliRig(monkeypatch)
    assert said in rig.refused("bench", *words.split())
    absent = rig.missing("bench", "receive", "--topic", "nothing")
    assert "topic not found: nothing" in absent
    assert "no topics yet" in rig.ok("topic", "list"), "and nothing was made for it"
    rig.close()


def said_of(code: GrpcCode, text: str, *, tls: bool = False) -> str:
    error = error_of(code, text, Endpoints.parse("h:1"))
    return call_failed(error, "h:1", Access(tls=tls)).message


def test_a_failed_call_is_said_in_words() -> None:
    for code, said in (
        (GrpcCode.UNAVAILABLE, "no broker answers at h:1; is `latermq serve` running"),
        (GrpcCode.DEADLINE_EXCEEDED, "the broker at h:1 did not answer in time"),
        (
            GrpcCode.RESOURCE_EXHAUSTED,
            "too much at once for the broker at h:1 or this command: why",
        ),
        (GrpcCode.UNIMPLEMENTED, "what serves h:1 does not know this call: not LaterMQ, or older"),
        (GrpcCode.INTERNAL, "the call to h:1 failed: why (INTERNAL)"),
    ):
        assert said_of(code, "why").startswith(said)


def test_a_connection_that_the_broker_ended_is_not_taken_for_none() -> None:
    for why in ("GOAWAY received; Error code: 11; Debug Text: too much", "GOAWAY 11 too much"):
        for tls in (False, True):
            told = said_of(GrpcCode.UNAVAILABLE, why, tls=tls)
            assert told == f"the broker at h:1 ended the connection: {why}"


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
