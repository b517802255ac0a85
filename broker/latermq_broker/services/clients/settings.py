"""A client's settings: checked, and answered merged with what the broker decides.

The answer is the client's own message with the broker's fields set. Numbers a client leaves zero
are placeholders, not wishes, so the broker's always replace them. Pure functions.

Producers get an exponential policy (Java refuses another one), consumers always a ladder, whatever
the group's policy is (Python and C++ understand nothing else; the exceptions are in
`client_quirks`). A group's own policy is enforced at the nack, whatever the client made of it.
"""

import re
from dataclasses import replace
from typing import Final, Protocol

from latermq_broker.config.config import Config
from latermq_broker.engine.state.model import LADDER_STEPS_MAX, Backoff, Group, backoff_ms
from latermq_broker.errors import (
    BadRequestError,
    IllegalGroupError,
    IllegalTopicError,
    InvalidClientPropertiesError,
)
from latermq_broker.services.call.namespaces import Namespaces
from latermq_broker.services.clients import settings_bounds
from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.session import LITE_KINDS, ClientKind
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.google.protobuf import duration_pb2

PRODUCER_ATTEMPTS_MAX: Final = 3
PRODUCER_BACKOFF_INITIAL_MS: Final = 10
PRODUCER_BACKOFF_MAX_MS: Final = 1_000
BACKOFF_MULTIPLIER: Final = 2.0

LITE_TOPIC_CHARACTERS_MAX: Final = 64

CLIENT_PROPERTIES_COUNT_MAX: Final = 32
CLIENT_PROPERTIES_BYTES_MAX: Final = 4_096
CLIENT_PROPERTY_VALUE_CHARACTERS_MAX: Final = 256
_NAMESPACES: Final = Namespaces(definition_pb2.Settings.DESCRIPTOR)
_CLIENT_PROPERTY_KEY: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}")
_CLIENT_PROPERTY_RESERVED_PREFIX: Final = "rocketmq."


def check(settings: definition_pb2.Settings) -> ClientKind:
    """Check settings and tell the kind of client.

    A client that does not say it is judged by what it sends.

    What nobody will read is dropped from `settings` first (`settings_bounds`).

    Raises:
        BadRequestError: neither publishing nor subscription, a client type that does not fit,
            a namespace, or more than a client may have the broker keep.
        IllegalTopicError, IllegalGroupError, IllegalFilterError, InvalidClientPropertiesError.
    """
    settings_bounds.trim(settings)
    settings_bounds.check_size(settings)
    _NAMESPACES.check(settings)
    _check_client_properties(settings)
    pub_sub = settings.WhichOneof("pub_sub")
    if pub_sub is None:
        raise BadRequestError("settings with neither publishing nor subscription")
    try:
        kind = ClientKind(int(settings.client_type))
    except ValueError as error:
        raise BadRequestError(f"client type {int(settings.client_type)} is unknown") from error
    if pub_sub == "publishing":
        if kind not in (ClientKind.UNSPECIFIED, ClientKind.PRODUCER):
            raise BadRequestError(f"publishing settings from a {kind.name}")
        for topic in settings.publishing.topics:
            wire.topic_name(topic)
        return ClientKind.PRODUCER
    if kind is ClientKind.PRODUCER:
        raise BadRequestError("subscription settings from a PRODUCER")
    subscription = settings.subscription
    wire.group_name(subscription.group)
    for entry in subscription.subscriptions:
        wire.topic_name(entry.topic)
        wire.message_filter(entry.expression)
    return ClientKind.SIMPLE_CONSUMER if kind is ClientKind.UNSPECIFIED else kind


class Groups(Protocol):
    def group(self, name: str) -> Group | None: ...


def check_group(kind: ClientKind, settings: definition_pb2.Settings, groups: Groups) -> None:
    """Check that group and kind fit.

    Clients of lite topics have groups of their own, each bound to one topic.

    Raises:
        IllegalGroupError: the group is there, and not for this kind of client.
        IllegalTopicError: not the topic it is bound to.
    """
    group = groups.group(settings.subscription.group.name)
    if kind is ClientKind.PRODUCER or group is None:
        return
    if bool(group.lite_parent) is not (kind in LITE_KINDS):
        what = "lite topics" if group.lite_parent else "whole topics"
        raise IllegalGroupError(f"group {group.name} reads {what}: not for a {kind.name}")
    for name in topics_of(settings):
        if group.lite_parent and name != group.lite_parent:
            raise IllegalTopicError(
                f"group {group.name} reads lite topics of {group.lite_parent}, not of {name}"
            )


def topics_of(settings: definition_pb2.Settings) -> frozenset[str]:
    """List the topics a client declares, published or subscribed."""
    if settings.HasField("publishing"):
        return frozenset(topic.name for topic in settings.publishing.topics)
    return frozenset(entry.topic.name for entry in settings.subscription.subscriptions)


def merge(
    settings: definition_pb2.Settings, group: Group | None, quirks: Quirk, config: Config
) -> definition_pb2.Settings:
    """Make the answer to checked settings.

    Args:
        group: the consumer group, or None for producers and groups that do not exist yet.
    """
    merged = definition_pb2.Settings()
    merged.CopyFrom(settings)
    merged.metric.Clear()
    merged.metric.SetInParent()  # no collector: on = false, but never absent
    merged.backoff_policy.Clear()
    if settings.HasField("publishing"):
        _merge_publishing(merged, config)
    else:
        _merge_subscription(merged, group, quirks, config)
    return merged


def _merge_publishing(merged: definition_pb2.Settings, config: Config) -> None:
    merged.publishing.validate_message_type = True
    merged.publishing.max_body_size = config.store.message_body_bytes_max
    merged.backoff_policy.max_attempts = PRODUCER_ATTEMPTS_MAX
    _set_exponential(
        merged.backoff_policy,
        initial_ms=PRODUCER_BACKOFF_INITIAL_MS,
        max_ms=PRODUCER_BACKOFF_MAX_MS,
        multiplier=BACKOFF_MULTIPLIER,
    )


def _merge_subscription(
    merged: definition_pb2.Settings, group: Group | None, quirks: Quirk, config: Config
) -> None:
    subscription = merged.subscription
    lite = int(merged.client_type) in LITE_KINDS
    subscription.fifo = lite if group is None else group.fifo
    subscription.receive_batch_size = config.delivery.receive_batch_max
    subscription.long_polling_timeout.Clear()
    _set_duration(subscription.long_polling_timeout, config.server.polling_ms_max)
    # Unset means 0 to lite clients: they could not subscribe.
    subscription.lite_subscription_quota = config.lite.subscriptions_per_client_max
    subscription.max_lite_topic_size = LITE_TOPIC_CHARACTERS_MAX

    policy = merged.backoff_policy
    policy.max_attempts = group.max_attempts if group else config.delivery.max_attempts
    ladder_ms = _ladder_ms(group.backoff if group else None, policy.max_attempts, config)
    if Quirk.EXPONENTIAL_ONLY in quirks:
        scale = 1_000 if Quirk.SECONDS_FOR_MS in quirks else 1
        _set_exponential(
            policy,
            initial_ms=ladder_ms[0] * scale,
            max_ms=ladder_ms[-1] * scale,
            multiplier=BACKOFF_MULTIPLIER,
        )
        return
    if Quirk.LADDER_ONE_AHEAD in quirks:
        ladder_ms = (ladder_ms[0], *ladder_ms)
    for delay_ms in ladder_ms:
        _set_duration(policy.customized_backoff.next.add(), delay_ms)


def _ladder_ms(backoff: Backoff | None, max_attempts: int, config: Config) -> tuple[int, ...]:
    """List the waits after attempt 1, 2, …; at least one; clients repeat the last."""
    if backoff is None:
        return config.delivery.retry_ladder_ms
    if backoff.delays_ms:
        return backoff.delays_ms
    steps: list[int] = []
    for attempt in range(1, max(1, min(max_attempts - 1, LADDER_STEPS_MAX)) + 1):
        steps.append(backoff_ms(replace(backoff, jitter=0.0), attempt, message=0))
        if steps[-1] >= backoff.max_ms:
            break
    return tuple(steps)


def _set_exponential(
    policy: definition_pb2.RetryPolicy, *, initial_ms: int, max_ms: int, multiplier: float
) -> None:
    _set_duration(policy.exponential_backoff.initial, initial_ms)
    _set_duration(policy.exponential_backoff.max, max_ms)
    policy.exponential_backoff.multiplier = multiplier


def _set_duration(duration: duration_pb2.Duration, ms: int) -> None:
    duration.seconds, rest_ms = divmod(ms, 1_000)
    duration.nanos = rest_ms * 1_000_000
    duration.SetInParent()  # zero is a wait too


def _check_client_properties(settings: definition_pb2.Settings) -> None:
    properties = settings.client_properties
    if len(properties) > CLIENT_PROPERTIES_COUNT_MAX:
        raise InvalidClientPropertiesError(
            f"{len(properties)} client properties, at most {CLIENT_PROPERTIES_COUNT_MAX} are "
            "allowed"
        )
    size = 0
    for key, value in properties.items():
        size += len(key.encode()) + len(value.encode())
        if _CLIENT_PROPERTY_KEY.fullmatch(key) is None or key.lower().startswith(
            _CLIENT_PROPERTY_RESERVED_PREFIX
        ):
            raise InvalidClientPropertiesError(
                "a client property's key has 1 to 64 characters a-z A-Z 0-9 _ . - from a letter "
                f"on and does not start with {_CLIENT_PROPERTY_RESERVED_PREFIX}"
            )
        if len(value) > CLIENT_PROPERTY_VALUE_CHARACTERS_MAX:
            raise InvalidClientPropertiesError(
                f"the value of client property {key} has more than "
                f"{CLIENT_PROPERTY_VALUE_CHARACTERS_MAX} characters"
            )
    if size > CLIENT_PROPERTIES_BYTES_MAX:
        raise InvalidClientPropertiesError(
            f"client properties have {size} bytes, at most {CLIENT_PROPERTIES_BYTES_MAX} are "
            "allowed"
        )
