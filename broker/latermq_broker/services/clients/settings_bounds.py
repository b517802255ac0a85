"""How much of a client's settings is kept: what the protocol names, and no more than limits allow.

Settings are kept for each client id and answered, so what a client writes into them the broker
holds for it until it has been silent for long. Fields that nobody knows are dropped before anything
is copied, and so is what the broker decides itself.
"""

from typing import Final

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.names import shown
from latermq_proto.apache.rocketmq.v2 import definition_pb2

SETTINGS_BYTES_MAX: Final = 128 << 10  # of one client, serialised
TOPICS_MAX: Final = 1_024  # published or subscribed
ADDRESSES_MAX: Final = 64  # of the access point
TEXT_CHARACTERS_MAX: Final = 512  # a host, and each text of the user agent

ENTRY_BYTES: Final = 160  # of a topic or an address, beside its text
COPIES: Final = 2  # of each text: the message's, and the session's own


def trim(settings: definition_pb2.Settings) -> None:
    """Drop unknown fields, and what the answer has from the broker alone."""
    settings.DiscardUnknownFields()
    settings.ClearField("metric")
    settings.ClearField("backoff_policy")


def check_size(settings: definition_pb2.Settings) -> None:
    """Check trimmed settings against the limits of one client.

    Raises:
        BadRequestError: too many topics or addresses, a text too long, or too much in all.
    """
    topics = len(settings.publishing.topics) or len(settings.subscription.subscriptions)
    for count, count_max, what in (
        (topics, TOPICS_MAX, "topics in a client's settings"),
        (len(settings.access_point.addresses), ADDRESSES_MAX, "addresses of an access point"),
    ):
        if count > count_max:
            raise BadRequestError(f"{count} {what}, at most {count_max} are allowed")
    agent = settings.user_agent
    for text, what in (
        (agent.version, "version"),
        (agent.platform, "platform"),
        (agent.hostname, "hostname"),
        *((address.host, "address") for address in settings.access_point.addresses),
    ):
        if len(text) > TEXT_CHARACTERS_MAX:
            raise BadRequestError(
                f"the {what} {shown(text)} in a client's settings is longer than "
                f"{TEXT_CHARACTERS_MAX} characters"
            )
    size = settings.ByteSize()
    if size > SETTINGS_BYTES_MAX:
        raise BadRequestError(
            f"a client's settings have {size} bytes, at most {SETTINGS_BYTES_MAX} are allowed"
        )


def held_bytes(settings: definition_pb2.Settings) -> int:
    """Estimate what a session holds for what its client told, beyond what every session costs."""
    entries = len(settings.access_point.addresses)
    if settings.HasField("publishing"):
        entries += len(settings.publishing.topics)
    else:
        entries += len(settings.subscription.subscriptions)
    return COPIES * settings.ByteSize() + ENTRY_BYTES * entries
