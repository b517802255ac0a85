"""What client and broker tell each other when they meet."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Final

from latermq._values.credentials import Credentials
from latermq._values.endpoints import Endpoints
from latermq.backoff import DEFAULT_RETRY_POLICY, RetryPolicy

ENDPOINT_VARIABLE: Final = "LATERMQ_ENDPOINT"
ENDPOINT: Final = "127.0.0.1:8081"
BODY_BYTES_MAX: Final = 4 << 20
RECEIVE_COUNT_MAX: Final = 32
LONG_POLLING_TIMEOUT: Final = timedelta(seconds=20)
REQUEST_TIMEOUT: Final = timedelta(seconds=3)
LITE_TOPICS_MAX: Final = 2_000
MATCH_ALL: Final = "*"


class ClientKind(IntEnum):
    """The numbers are the protocol's."""

    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


@dataclass(slots=True, kw_only=True)
class Profile:
    """What a client says about itself.

    Fields:
        topics: name to tag filter; for a producer the names count.
        group: "" for a producer.
        service: the app whose worker it is; "": no app's.
    """

    kind: ClientKind
    client_id: str
    access_point: Endpoints
    namespace: str = ""
    group: str = ""
    service: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    request_timeout: timedelta = REQUEST_TIMEOUT
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the broker decided; until it has, what it usually does."""

    body_bytes_max: int = BODY_BYTES_MAX
    receive_count_max: int = RECEIVE_COUNT_MAX
    long_polling_timeout: timedelta = LONG_POLLING_TIMEOUT
    fifo: bool = False
    lite_topics_max: int = LITE_TOPICS_MAX  # that a client may subscribe to
    retry: RetryPolicy = DEFAULT_RETRY_POLICY
