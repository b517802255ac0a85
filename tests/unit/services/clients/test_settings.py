"""Settings: what stands, and what the broker answers (protocol.md 2.2)."""

import pytest

from latermq_broker import errors
from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.config.config import Config
from latermq_broker.engine.state.model import Backoff, Group
from latermq_broker.services.clients import settings as client_settings
from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.session import ClientKind
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.google.protobuf.duration_pb2 import Duration

CONFIG = Config()


def publishing(*topics: str, kind: v2.ClientType = v2.PRODUCER) -> v2.Settings:
    resources = [v2.Resource(name=topic) for topic in topics]
    return v2.Settings(client_type=kind, publishing=v2.Publishing(topics=resources))


def subscription(
    group: str = "g", expression: str = "*", kind: v2.ClientType = v2.PUSH_CONSUMER
) -> v2.Settings:
    entry = v2.SubscriptionEntry(
        topic=v2.Resource(name="t"), expression=v2.FilterExpression(expression=expression)
    )
    return v2.Settings(
        client_type=kind,
        subscription=v2.Subscription(group=v2.Resource(name=group), subscriptions=[entry]),
    )


def group(backoff: Backoff | None = None, *, max_attempts: int = 17, fifo: bool = False) -> Group:
    return Group(
        id=1, name="g", fifo=fifo, max_attempts=max_attempts, backoff=backoff, created_ms=0
    )


def ms(duration: Duration) -> int:
    return duration.seconds * 1_000 + duration.nanos // 1_000_000


def ladder_ms(merged: v2.Settings) -> list[int]:
    return [ms(step) for step in merged.backoff_policy.customized_backoff.next]


def merged(settings: v2.Settings, group: Group | None = None) -> v2.Settings:
    return client_settings.merge(settings, group, Quirk.NONE, CONFIG)


class TestCheck:
    def test_a_producer_without_topics_stands(self) -> None:
        assert client_settings.check(publishing()) is ClientKind.PRODUCER

    @pytest.mark.parametrize(
        "kind",
        [v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER, v2.LITE_PUSH_CONSUMER,
         v2.LITE_SIMPLE_CONSUMER],
    )  # fmt: skip
    def test_every_kind_of_consumer_stands(self, kind: v2.ClientType) -> None:
        assert client_settings.check(subscription(kind=kind)) == ClientKind(int(kind))

    def test_a_client_that_does_not_say_its_kind_is_judged_by_what_it_sends(self) -> None:
        unset = v2.CLIENT_TYPE_UNSPECIFIED
        assert client_settings.check(publishing("t", kind=unset)) is ClientKind.PRODUCER
        assert client_settings.check(subscription(kind=unset)) is ClientKind.SIMPLE_CONSUMER

    @pytest.mark.parametrize(
        ("settings", "error"),
        [
            (v2.Settings(client_type=v2.PRODUCER), errors.BadRequestError),
            (publishing("t", kind=v2.PUSH_CONSUMER), errors.BadRequestError),
            (subscription(kind=v2.PRODUCER), errors.BadRequestError),
            (publishing("a b"), errors.IllegalTopicError),
            (publishing("TBW102"), errors.IllegalTopicError),
            (subscription(group=""), errors.IllegalGroupError),
            (subscription(group="CID_RMQ_SYS_x"), errors.IllegalGroupError),
            (subscription(expression="||"), errors.IllegalFilterError),
            (v2.Settings(client_properties={"1": "x"}), errors.InvalidClientPropertiesError),
            (
                v2.Settings(client_properties={"rocketmq.x": "x"}),
                errors.InvalidClientPropertiesError,
            ),
            (v2.Settings(client_properties={"k": "x" * 257}), errors.InvalidClientPropertiesError),
            (
                v2.Settings(client_properties={f"k{n}": "x" for n in range(33)}),
                errors.InvalidClientPropertiesError,
            ),
            (
                v2.Settings(client_properties={f"k{n}": "x" * 200 for n in range(30)}),
                errors.InvalidClientPropertiesError,
            ),
        ],
    )
    def test_what_does_not_stand(
        self, settings: v2.Settings, error: type[errors.RequestError]
    ) -> None:
        with pytest.raises(error):
            client_settings.check(settings)

    def test_client_properties_within_their_bounds_stand(self) -> None:
        settings = publishing("t")
        settings.client_properties["team.name"] = "x" * 256
        client_settings.check(settings)


class TestProducer:
    def test_gets_the_exponential_policy_that_java_insists_on(self) -> None:
        policy = merged(publishing("t")).backoff_policy
        assert policy.max_attempts == 3
        assert policy.WhichOneof("strategy") == "exponential_backoff"
        exponential = policy.exponential_backoff
        assert (ms(exponential.initial), ms(exponential.max)) == (10, 1_000)
        assert exponential.multiplier == 2

    def test_gets_the_limits_and_its_own_fields_back(self) -> None:
        settings = publishing("t")
        settings.access_point.scheme = v2.DOMAIN_NAME
        settings.user_agent.version = "5.2.1"
        settings.request_timeout.seconds = 3
        answer = merged(settings)
        assert answer.publishing.max_body_size == 4 << 20
        assert answer.publishing.validate_message_type
        assert answer.access_point == settings.access_point
        assert answer.user_agent == settings.user_agent
        assert answer.request_timeout.seconds == 3
        assert [topic.name for topic in answer.publishing.topics] == ["t"]

    def test_the_metric_field_is_set_even_when_off(self) -> None:
        settings = publishing("t")
        settings.metric.on = True
        answer = v2.Settings.FromString(merged(settings).SerializeToString())
        assert answer.HasField("metric")
        assert not answer.metric.on


class TestConsumer:
    def test_an_unknown_group_gets_the_broker_s_ladder(self) -> None:
        answer = merged(subscription())
        assert answer.backoff_policy.max_attempts == 17
        assert tuple(ladder_ms(answer)) == Config().delivery.retry_ladder_ms
        assert not answer.subscription.fifo

    def test_placeholders_are_replaced(self) -> None:
        settings = subscription()
        settings.subscription.receive_batch_size = 7
        settings.subscription.fifo = True
        settings.subscription.long_polling_timeout.seconds = 40
        answer = merged(settings).subscription
        assert answer.receive_batch_size == 32
        assert not answer.fifo
        assert ms(answer.long_polling_timeout) == 20_000
        assert answer.lite_subscription_quota == 2_000
        assert answer.max_lite_topic_size == 64

    def test_the_group_s_ladder_attempts_and_order_win(self) -> None:
        backoff = Backoff(kind=BackoffKind.LADDER, delays_ms=(100, 1_500))
        answer = merged(subscription(), group(backoff, max_attempts=4, fifo=True))
        assert ladder_ms(answer) == [100, 1_500]
        assert answer.backoff_policy.max_attempts == 4
        assert answer.subscription.fifo

    def test_an_exponential_policy_becomes_the_ladder_it_means(self) -> None:
        backoff = Backoff(
            kind=BackoffKind.EXPONENTIAL,
            initial_ms=5_000,
            max_ms=60_000,
            multiplier=2.0,
            jitter=0.5,
        )
        answer = merged(subscription(), group(backoff))
        assert ladder_ms(answer) == [5_000, 10_000, 20_000, 40_000, 60_000]

    def test_a_fixed_policy_is_a_ladder_of_one(self) -> None:
        backoff = Backoff(kind=BackoffKind.FIXED, delays_ms=(2_000,))
        assert ladder_ms(merged(subscription(), group(backoff))) == [2_000]

    @pytest.mark.parametrize("max_attempts", [1, 2, 1_000])
    def test_the_ladder_is_never_empty_and_never_long(self, max_attempts: int) -> None:
        backoff = Backoff(
            kind=BackoffKind.EXPONENTIAL, initial_ms=1, max_ms=2**40, multiplier=1.001
        )
        steps = ladder_ms(merged(subscription(), group(backoff, max_attempts=max_attempts)))
        assert 1 <= len(steps) <= 64
