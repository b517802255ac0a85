"""Settings a client sends are kept and answered: as far as anybody reads them, and bounded."""

import pytest

from latermq_broker.config.config import SETTINGS_BYTES_MIN, Config
from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.field_counts import COMMAND_FIELDS_MAX, FieldCount
from latermq_broker.services.clients import settings as client_settings
from latermq_broker.services.clients import settings_bounds
from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.session import CONNECTION_SHARE
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand

UNKNOWN = b"\xfa\x3e\x80\x80\x04" + b"z" * 65_536  # field 1007, which nobody has


def producer(count: int = 1, name: str = "t") -> v2.Settings:
    topics = [v2.Resource(name=name) for _ in range(count)]
    return v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=topics))


def consumer(count: int = 1) -> v2.Settings:
    entries = [v2.SubscriptionEntry(topic=v2.Resource(name="t")) for _ in range(count)]
    group = v2.Resource(name="g")
    return v2.Settings(
        client_type=v2.PUSH_CONSUMER,
        subscription=v2.Subscription(group=group, subscriptions=entries),
    )


def answered(settings: v2.Settings) -> v2.Settings:
    client_settings.check(settings)
    return client_settings.merge(settings, None, Quirk.NONE, Config())


@pytest.mark.parametrize("known", [producer(), consumer()], ids=["producer", "consumer"])
def test_unknown_fields_are_neither_kept_nor_answered(known: v2.Settings) -> None:
    told = v2.Settings.FromString(known.SerializeToString() + UNKNOWN)
    told.user_agent.MergeFromString(UNKNOWN)
    told.access_point.addresses.add().MergeFromString(UNKNOWN)
    assert told.ByteSize() > 3 * 65_536
    answer = answered(told)
    assert answer.ByteSize() < 1_000
    assert b"zzzz" not in answer.SerializeToString()


def test_what_the_broker_decides_is_not_copied_first() -> None:
    told = producer()
    for _ in range(100_000):
        told.backoff_policy.customized_backoff.next.add()
        told.metric.endpoints.addresses.add()
    answer = answered(told)
    assert not told.HasField("backoff_policy")
    assert not told.HasField("metric")
    assert answer.HasField("metric")
    assert answer.backoff_policy.HasField("exponential_backoff")


@pytest.mark.parametrize("of", [producer, consumer])
def test_the_number_of_topics_is_bounded(of: type) -> None:
    answered(of(settings_bounds.TOPICS_MAX))
    with pytest.raises(BadRequestError, match=r"1025 topics .* at most 1024"):
        answered(of(settings_bounds.TOPICS_MAX + 1))


def test_addresses_are_bounded() -> None:
    told = producer()
    for _ in range(settings_bounds.ADDRESSES_MAX + 1):
        told.access_point.addresses.add(host="h", port=1)
    with pytest.raises(BadRequestError, match=r"65 addresses .* at most 64"):
        answered(told)


@pytest.mark.parametrize("field", ["version", "platform", "hostname"])
def test_the_user_agent_is_bounded(field: str) -> None:
    told = producer()
    setattr(told.user_agent, field, "x" * settings_bounds.TEXT_CHARACTERS_MAX)
    answered(told)
    setattr(told.user_agent, field, "x" * (settings_bounds.TEXT_CHARACTERS_MAX + 1))
    with pytest.raises(BadRequestError, match=f"{field} .* longer than 512"):
        answered(told)


def test_all_of_it_is_bounded() -> None:
    told = producer(1_000, "t" * 120)
    answered(told)
    for topic in told.publishing.topics:
        topic.resource_namespace = "n" * 120
    with pytest.raises(BadRequestError, match=f"at most {settings_bounds.SETTINGS_BYTES_MAX}"):
        answered(told)


def test_the_largest_settings_of_one_client_fit_into_the_smallest_share() -> None:
    bounds = settings_bounds
    largest = bounds.COPIES * bounds.SETTINGS_BYTES_MAX
    largest += bounds.ENTRY_BYTES * (bounds.TOPICS_MAX + bounds.ADDRESSES_MAX)
    assert largest <= SETTINGS_BYTES_MIN // CONNECTION_SHARE


def test_what_is_held_counts_text_and_entries() -> None:
    few, many = producer(1), producer(100)
    assert settings_bounds.held_bytes(many) >= settings_bounds.held_bytes(few) + 99 * 160


def test_as_many_topics_as_there_may_be_are_not_too_many_fields() -> None:
    count = FieldCount(TelemetryCommand.DESCRIPTOR, COMMAND_FIELDS_MAX)
    told = consumer(settings_bounds.TOPICS_MAX)
    for entry in told.subscription.subscriptions:
        entry.topic.resource_namespace = "n"
        entry.expression.type = v2.TAG
        entry.expression.expression = "a || b"
    count.check(TelemetryCommand(settings=told).SerializeToString())
    with pytest.raises(BadRequestError, match=str(COMMAND_FIELDS_MAX)):
        count.check(TelemetryCommand(settings=producer(40_000)).SerializeToString())
