"""latermq.spark.options: what users write."""

import pickle
import re
from pathlib import Path

import pytest

from latermq.spark.errors import OptionError
from latermq.spark.options import Boundary, Edge, Options, Subscription, parse

LEAST = {"endpoint": "broker:8081", "topics": "orders"}


def test_defaults() -> None:
    assert parse(LEAST) == Options(
        endpoints=("broker:8081",),
        subscription=Subscription(topics=("orders",)),
        starting=Boundary(edge=Edge.EARLIEST),
        ending=Boundary(edge=Edge.LATEST),
        offsets_per_trigger_max=None,
        offsets_per_trigger_min=0,
        trigger_delay_ms_max=900_000,
        partitions_min=4,
        partition_rows_max=50_000,
        fail_on_data_loss=True,
        retry_ms=30_000,
        request_timeout_ms=10_000,
        page_bytes_max=1 << 20,
        page_rows_max=2_000,
        offset_poll_ms=200,
    )


def test_all_of_them_in_any_case() -> None:
    options = parse(
        {
            "ENDPOINT": "a:1, [::1]:2",
            "Group": "billing, audit,billing",
            "startingtimestamp": "2024-05-01T12:00:00Z",
            "endingOffsets": '{"%DLQ%billing": {"0": 9}}',
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "90s",
            "minPartitions": "8",
            "rowsPerPartition": "1000",
            "failondataloss": "FALSE",
            "retryFor": "1m",
            "requestTimeout": "2500",
            "pageBytes": "65536",
            "pageRows": "100",
            "offsetPollMs": "50",
        }
    )
    assert options == Options(
        endpoints=("a:1", "[::1]:2"),
        subscription=Subscription(topics=("%DLQ%audit", "%DLQ%billing")),
        starting=Boundary(edge=Edge.TIME, at_ms=1_714_564_800_000),
        ending=Boundary(edge=Edge.OFFSETS, offsets={"%DLQ%billing": {0: 9}}),
        offsets_per_trigger_max=1_000,
        offsets_per_trigger_min=10,
        trigger_delay_ms_max=90_000,
        partitions_min=8,
        partition_rows_max=1_000,
        fail_on_data_loss=False,
        retry_ms=60_000,
        request_timeout_ms=2_500,
        page_bytes_max=65_536,
        page_rows_max=100,
        offset_poll_ms=50,
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("failOnDataLos", "failOnDataLoss"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("topic", "topics"),
        ("endpoints", "endpoint"),
        ("subscribePattern", "topicPattern"),
    ],
)
def test_an_unknown_option_names_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(OptionError, match=rf"no option {typed}; did you mean {meant}\?$"):
        parse({**LEAST, typed: "x"})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"topics": "a", "group": "b"},
        {"topics": "a", "topicPattern": "b", "group": "c"},
    ],
)
def test_exactly_one_subscription(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exactly one of topics, topicPattern and group"):
        parse({"endpoint": "a:1", **given})


def test_an_endpoint_is_needed() -> None:
    with pytest.raises(OptionError, match=r"^LATERMQ_OPTION: endpoint is missing"):
        parse({"topics": "a"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("endpoint", "broker"),
        ("endpoint", "http://broker:8081"),
        ("endpoint", "broker:0"),
        ("endpoint", "broker:70000"),
        ("topics", " , "),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"a": 3}'),
        ("startingOffsets", '{"a": {"0": -3}}'),
        ("startingOffsets", '{"a": {"0": true}}'),
        ("startingOffsets", '{"a": {"-1": 3}}'),
        ("startingOffsets", "[1]"),
        ("endingOffsets", "earliest"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "0"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxTriggerDelay", "0s"),
        ("maxTriggerDelay", "soon"),
        ("failOnDataLoss", "yes"),
        ("pageBytes", str((8 << 20) + 1)),
        ("pageRows", "2001"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"^LATERMQ_OPTION: {name}"):
        parse({**LEAST, name: text})


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(OptionError, match=r"topicPattern.*regular expression"):
        parse({"endpoint": "a:1", "topicPattern": "(("})


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_offsets_and_time_exclude_each_other(which: str) -> None:
    both = {f"{which}Offsets": '{"orders": {"0": 1}}', f"{which}Timestamp": "1"}
    with pytest.raises(OptionError, match="exclude each other"):
        parse({**LEAST, **both})


def test_more_at_least_than_at_most_is_refused() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is above"):
        parse({**LEAST, "minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"})


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [("1714564800123", 1_714_564_800_123), ("2024-05-01T14:00:00+02:00", 1_714_564_800_000)],
)
def test_times(text: str, at_ms: int) -> None:
    assert parse({**LEAST, "startingTimestamp": text}).starting.at_ms == at_ms


@pytest.mark.parametrize(
    ("starting", "moves"),
    [
        ("earliest", False),
        ("latest", True),
        ('{"orders": {"0": 3, "1": -2}}', False),
        ('{"orders": {"0": 3, "1": -1}}', True),
    ],
)
def test_which_starts_move(starting: str, moves: bool) -> None:
    assert parse({**LEAST, "startingOffsets": starting}).starting.moves is moves


def test_a_pattern_matches_whole_names() -> None:
    subscription = Subscription(pattern=re.escape("%DLQ%") + "bill.*")
    assert "%DLQ%billing" in subscription
    assert "%DLQ%audit" not in subscription
    assert "x%DLQ%billing" not in subscription


def test_every_error_is_one_line() -> None:
    with pytest.raises(OptionError) as caught:
        parse({**LEAST, "pageRows": "1\n2"})
    assert "\n" not in str(caught.value)


class TestIdentity:
    @pytest.fixture(autouse=True)
    def nothing_in_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("ACCESS_KEY", "SECRET_KEY", "TLS", "CA", "INSECURE_SKIP_VERIFY"):
            monkeypatch.delenv(f"LATERMQ_{name}", raising=False)

    def test_from_options_or_the_environment(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        ca = tmp_path / "ca.pem"
        ca.write_text("PEM")
        given = {"accessKey": "spark", "secretKey": "a-secret", "caFile": str(ca)}
        options = parse({**LEAST, **given})
        assert (options.access_key, options.secret_key) == ("spark", "a-secret")
        assert (options.tls, options.ca) == (True, b"PEM")
        assert "a-secret" not in repr(options)
        assert pickle.loads(pickle.dumps(options)) == options
        for name, value in (("ACCESS_KEY", "spark"), ("SECRET_KEY", "a-secret"), ("CA", str(ca))):
            monkeypatch.setenv(f"LATERMQ_{name}", value)
        assert parse(LEAST) == options

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"accessKey": "spark"}, "given together"),
            ({"secretKey": "a-secret"}, "given together"),
            ({"caFile": "/nowhere.pem"}, "cannot be read"),
            ({"tls": "maybe"}, "true or false"),
            ({"tls": "false", "caFile": __file__}, "does not go with caFile"),
        ],
    )
    def test_what_does_not_fit(self, given: dict[str, str], reason: str) -> None:
        with pytest.raises(OptionError, match=reason) as refused:
            parse({**LEAST, **given})
        assert "a-secret" not in str(refused.value)

    def test_nobody_trusts_whoever_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LATERMQ_INSECURE_SKIP_VERIFY", "1")
        with pytest.raises(OptionError, match="set the option caFile"):
            parse(LEAST)
