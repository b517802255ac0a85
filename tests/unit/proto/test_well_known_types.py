"""Timestamp and Duration of the private pool keep the conveniences of protobuf's own."""

import pickle
from datetime import UTC, datetime, timedelta

from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.google.protobuf import duration_pb2, timestamp_pb2


def test_timestamp_from_and_to_milliseconds() -> None:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromMilliseconds(1_700_000_000_999)
    assert (stamp.seconds, stamp.nanos) == (1_700_000_000, 999_000_000)
    assert stamp.ToDatetime(UTC) == datetime(2023, 11, 14, 22, 13, 20, 999_000, tzinfo=UTC)


def test_duration_from_and_to_timedelta() -> None:
    duration = duration_pb2.Duration()
    duration.FromTimedelta(timedelta(milliseconds=1_500))
    assert duration.ToMilliseconds() == 1_500


def test_they_are_the_types_of_our_fields() -> None:
    stamp = timestamp_pb2.Timestamp(seconds=7)
    system = definition_pb2.SystemProperties(born_timestamp=stamp)
    assert isinstance(system.born_timestamp, timestamp_pb2.Timestamp)
    system.delivery_timestamp.CopyFrom(stamp)
    assert system.delivery_timestamp.ToSeconds() == 7


def test_messages_can_be_pickled() -> None:
    message = definition_pb2.Message(body=b"one", user_properties={"a": "b"})
    assert pickle.loads(pickle.dumps(message)) == message
