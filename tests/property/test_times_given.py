"""Times as users give them, whatever they write: each front takes them, or refuses by name.

Command line, SDK, configuration and Spark's options have one parser of instants and one of spans;
nothing but their own error comes out, in one line that is no longer than a terminal's few.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import latermq
from latermq._consuming.calling import batch_of
from latermq._values import arguments
from latermq._values.durations import span_of
from latermq._worker.rates import interval_of
from latermq.backoff import WAIT_MAX, Backoff, wait_of
from latermq.spark.errors import OptionError
from latermq.spark.options import parse
from latermq_broker.config.toml_file import load
from latermq_broker.errors import ConfigError
from latermq_cli.connection.options import duration, instant
from latermq_console.pages.letter_filter import instant_ms
from latermq_console.serving.console import FormError
from latermq_text.durations import DURATION_MS_MAX, format_exact, parse_duration_ms
from latermq_text.instants import INSTANT_MS_MAX, parse_instant_ms

NOW_MS = 1_795_870_000_000
SECONDS, MICROSECONDS = "1795870000", "1795870000000000"
REFUSED_CHARACTERS_MAX = 400

WORDS = st.one_of(
    st.integers().map(str),
    st.integers(0, 10**40).map(str),
    st.floats().map(repr),
    st.sampled_from(["", "now", "NaN", "inf", "-inf", "0", "-0", "1e400", "0x10", SECONDS,
                     MICROSECONDS, "9" * 5_000, "9" * 5_000 + "d", "-" + "9" * 400 + "h",
                     "٣", "²", "1_000", "٣s", "5min", "1h 30m", "999999999d", "-0.0s", "00:00",
                     "0001-01-01", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00+23:59",
                     "20260501", "2026-W18", "1970-01-01T00:00:00Z"]),
    st.builds(lambda count, unit: f"{count}{unit}", st.integers(-5, 10**25),
              st.sampled_from(["ms", "s", "m", "min", "h", "d", "w", "y", " s", "S"])),
    st.datetimes().map(str),
    st.text(max_size=80),
)  # fmt: skip


def refused_well(error: BaseException) -> None:
    text = str(getattr(error, "message", error))
    assert text
    assert "\n" not in text
    assert len(text) < REFUSED_CHARACTERS_MAX


@settings(deadline=None)
@given(WORDS)
def test_the_parsers_refuse_by_value_errors_alone(text: str) -> None:
    try:
        ms = parse_duration_ms(text)
        assert 0 <= ms <= DURATION_MS_MAX
        assert parse_duration_ms(format_exact(ms)) == ms
    except ValueError as error:
        refused_well(error)
    for now_ms in (None, NOW_MS):
        try:
            assert 0 <= parse_instant_ms(text, now_ms, UTC) <= INSTANT_MS_MAX
        except ValueError as error:
            refused_well(error)


@settings(deadline=None)
@given(WORDS)
@example(SECONDS)
@example(MICROSECONDS)
def test_the_command_line_and_the_console(text: str) -> None:
    for read in (duration, instant):
        try:
            assert read(text) >= 0
        except click.BadParameter as error:
            refused_well(error)
    try:
        assert instant_ms(text) >= 0
    except FormError as error:
        refused_well(error)


@settings(deadline=None)
@given(
    st.sampled_from(["startingTimestamp", "endingTimestamp", "maxTriggerDelay", "retryFor",
                     "requestTimeout", "maxOffsetsPerTrigger", "offsetPollMs", "startingOffsets",
                     "pageRows"]),
    st.one_of(WORDS, st.builds('{{"orders": {{"{}": {}}}}}'.format, WORDS, WORDS),
              st.just("[" * 100_000)),
)  # fmt: skip
@example("startingTimestamp", SECONDS)
def test_options_of_spark(name: str, text: str) -> None:
    try:
        parse({"endpoint": "b:8081", "topics": "orders", name: text})
    except OptionError as error:
        refused_well(error)
        said = str(error)
    else:
        said = name
        assert text.strip() not in (SECONDS, MICROSECONDS) or not name.endswith("Timestamp")
    assert name in said


@pytest.mark.parametrize("name", ["retryFor", "requestTimeout", "maxTriggerDelay"])
def test_a_span_of_spark_that_would_be_seconds_elsewhere(name: str) -> None:
    with pytest.raises(OptionError, match=r"say the unit, e\.g\. 30s"):
        parse({"endpoint": "b:8081", "topics": "orders", name: "30"})


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(["server.client_silent_ms_max", "store.retention_ms", "store.segment_bytes",
                     "delivery.delay_levels_ms", "transaction.age_ms_max", "tls.certificate"]),
    st.one_of(WORDS, st.just("0x" + "f" * 5_000)),
)  # fmt: skip
@example("server.client_silent_ms_max", "9" * 5_000)
@example("store.retention_ms", "0x" + "f" * 5_000)
def test_configuration(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    section, _, setting = name.partition(".")
    file = tmp_path_factory.getbasetemp() / "given.toml"
    for value in (text, f'"{text}"', f"[{text}]"):
        file.write_text(f"[{section}]\n{setting} = {value}\n", encoding="utf-8", errors="replace")
        _loads(file, {})
    variable = f"LATERMQ_{section}_{setting}".upper()
    _loads(None, {variable: text})


def _loads(file: Path | None, environment: dict[str, str]) -> None:
    try:
        load(file, environment, {})
    except ConfigError as error:
        refused_well(error)


def test_a_setting_of_milliseconds_may_be_a_duration(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[server]\nclient_silent_ms_max = "2m 5s"\n', encoding="utf-8")
    assert load(file, {}, {}).server.client_silent_ms_max == 125_000
    environment = {"LATERMQ_STORE_RETENTION_MS": "3d"}
    assert load(None, environment, {}).store.retention_ms == 3 * 86_400_000


SPANS = st.one_of(
    st.timedeltas(), st.sampled_from([timedelta.max, timedelta.min, timedelta(0)]),
    WORDS, st.none(), st.floats(), st.integers(),
)  # fmt: skip


def taken(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, TypeError) as error:
        refused_well(error)
        return None


@settings(deadline=None)
@given(SPANS)
@example(timedelta.max)
def test_arguments_of_the_sdk(span: Any) -> None:
    given_span = taken(lambda: span_of("every", span))
    assert given_span is None or timedelta(0) <= given_span <= arguments.DURATION_MAX
    message = taken(lambda: latermq.Message(b"", delay=span))
    if message is not None:
        message.due(datetime.now(UTC))
    taken(lambda: batch_of(2, span))
    taken(lambda: interval_of(span))
    taken(lambda: interval_of(f"1/{span}"))
    for words in (f"{span}", f"fixed {span}", f"exponential 1s {span}", f"exponential 1s 2h {span}",
                  f"1s jitter {span}"):  # fmt: skip
        backoff = taken(partial(Backoff, words))
        if backoff is not None:
            assert backoff.wait(1_000, 0.999) >= timedelta(0)
    for name in ("request_timeout", "grace", "after", "timeout"):
        taken(partial(arguments.optional_duration, name, span))


class _Names:
    def __init__(self, span: Any) -> None:
        self._span = span

    def wait(self, error: Exception) -> Any:
        return self._span


@settings(deadline=None)
@given(SPANS)
@example(1e300)
@example(timedelta.max)
@example("9" * 5_000)
def test_a_wait_that_an_exception_names(span: Any) -> None:
    wait = wait_of(ValueError(), _Names(span).wait)
    assert wait is None or timedelta(0) <= wait <= WAIT_MAX


def test_a_wait_beyond_the_bound_is_the_bound_and_told(caplog: pytest.LogCaptureFixture) -> None:
    for span in (1e300, timedelta.max, "9" * 5_000, "999999999d", 43_201):
        assert wait_of(ValueError(), _Names(span).wait) == WAIT_MAX
    assert caplog.text.count("12h") >= 5


@settings(deadline=None)
@given(st.one_of(st.datetimes(timezones=st.timezones()), st.just(datetime.max.replace(tzinfo=UTC))))
def test_instants_of_the_sdk_can_be_sent(at: datetime) -> None:
    from latermq._wire.session_calls import write_timestamp
    from latermq_proto.google.protobuf.timestamp_pb2 import Timestamp

    message = taken(lambda: latermq.Message(b"", deliver_at=at))
    assert message is not None
    write_timestamp(Timestamp(), message.due(datetime.now(UTC)))


def test_a_time_out_of_every_bound_is_refused_before_anything_is_sent() -> None:
    async def scenario() -> None:
        async with latermq.connect("127.0.0.1:1") as mq:
            with pytest.raises(ValueError, match=r"delay must be at most \d+ days"):
                await mq.send("t", b"", delay=timedelta.max)
            with pytest.raises(ValueError, match=r"timeout must be at most \d+ days"):
                await mq.send("t", b"", timeout=timedelta.max)
            with pytest.raises(ValueError, match=r"check_after must be at most \d+ days"):
                mq.transaction("t", b"", check_after=timedelta.max)

    asyncio.run(scenario())
