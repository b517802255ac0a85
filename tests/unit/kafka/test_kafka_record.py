"""Any record of Kafka, into a message and out again; and what is told of its first attempt."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from latermq._values.failure import describe
from latermq.delivery import Outcome, Verdict
from latermq.kafka import ATTEMPT_HEADER, GROUP_HEADER, Record, meant_for
from latermq.kafka._first import FAILURE_PROPERTY, FirstFailure
from latermq.kafka._record import (
    LINE_BYTES_MAX,
    MESSAGE_GROUP_BYTES_MAX,
    RECORD_PROPERTY,
    BadRecordError,
    message_group_of,
    message_of,
    record_of,
    retry_topic_of,
)

DATA = st.none() | st.binary(max_size=40) | st.binary(min_size=8_000, max_size=8_001)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RECORDS = st.builds(
    Record,
    topic=NAMES,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    key=DATA,
    value=DATA,
    headers=st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple),
    timestamp=st.none()
    | st.integers(0, 2**41).map(lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(0, 0, 0, ms)),
)


@given(RECORDS, st.integers(1, 99))
def test_a_record_comes_back_as_it_was(record: Record, attempt: int) -> None:
    message = message_of(record, "billing", {"other": "1"}, message_group_of(record))
    back = record_of(message.body, message.properties, attempt)
    assert (back.attempt, back.headers, back.timestamp) == (
        attempt, record.headers, record.timestamp,
    )  # fmt: skip
    assert (back.key, back.value, back.place) == (record.key, record.value, record.place)
    assert message.body
    assert len(message.properties[RECORD_PROPERTY]) <= LINE_BYTES_MAX
    assert message.properties["other"] == "1"
    group = message.message_group
    assert group is not None
    assert 0 < len(group.encode()) <= MESSAGE_GROUP_BYTES_MAX


def test_a_value_is_the_body_where_that_can_be() -> None:
    message = message_of(Record(topic="orders", partition=3, offset=17, value=b"{}"), "g", {}, None)
    assert (message.body, message.keys) == (b"{}", ("orders-3-17",))
    assert json.loads(message.properties[RECORD_PROPERTY])["topic"] == "orders"


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("", b""),
        ("body", b"{}"),
        ("body", b'{"topic":"a"}\nvalue'),
        ("body", b"\xff\nvalue"),
        ("[]", b"value"),
        ('{"topic":7,"partition":0,"offset":0,"key":null,"headers":[],"null":false}', b"value"),
        ('{"topic":"a","partition":0,"offset":0,"timestamp_ms":1e400,"key":null,"headers":[],'
         '"null":false}', b"value"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_told(line: str, body: bytes) -> None:
    with pytest.raises(BadRecordError):
        record_of(body, {RECORD_PROPERTY: line}, 1)


def test_records_for_another_group_are_known_by_their_last_header() -> None:
    assert meant_for("a", None)
    assert meant_for("a", [("x", b"b")])
    assert meant_for("a", [(GROUP_HEADER, b"b"), (GROUP_HEADER, b"a")])
    assert not meant_for("a", [(GROUP_HEADER, b"a"), (GROUP_HEADER, b"b"), (ATTEMPT_HEADER, b"2")])
    assert not meant_for("a", [(GROUP_HEADER, b"\xff")])


@pytest.mark.parametrize("after", [None, timedelta(minutes=1)])
def test_a_first_failure_is_told_whole(after: timedelta | None) -> None:
    try:
        raise ValueError("a\nb é" * 900)
    except ValueError as error:
        first = FirstFailure.now(error, Verdict(Outcome.RETURNED, after), 2)
        known = describe(error)
    line = first.line()
    assert len(line) <= LINE_BYTES_MAX
    assert FirstFailure.of({FAILURE_PROPERTY: line}) in (
        first, first._replace(failure=type(known)(known.class_name, known.text, known.stack_hash))
    )  # fmt: skip
    assert timedelta(0) < first.left_of(timedelta(hours=1)) <= timedelta(hours=1)
    assert first.left_of(timedelta(0)) == timedelta(0)


@pytest.mark.parametrize("line", ["", "[]", "{}", "null", '{"after_ms":1,"outcome":"?"}'])
def test_a_first_failure_that_cannot_be_read_is_none(line: str) -> None:
    assert FirstFailure.of({FAILURE_PROPERTY: line}) is None
    assert FirstFailure.of({}) is None


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
@example("orders", "eu-billing", "orders-eu", "billing")
@example("a.b", "c", "a_b", "c")
@example("a", "%2D", "a", "-")
def test_no_two_pairs_have_one_retry_topic(
    topic: str, group: str, other_topic: str, other_group: str
) -> None:
    assume((topic, group) != (other_topic, other_group))
    one, other = retry_topic_of(topic, group), retry_topic_of(other_topic, other_group)
    assert one != other
    assert re.fullmatch(r"[a-zA-Z0-9_%-]+", one)
