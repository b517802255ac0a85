"""How a command speaks to a broker: one channel, plain calls, every failure a sentence.

Uses the generated stubs directly; the broker's package and the SDK never import each other.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Self, TypeVar

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # grpc's own log lines are not for users

import grpc

from latermq_cli.connection.door import current_door
from latermq_cli.connection.door_channels import open_channel, speaks_tls
from latermq_cli.terminal.failures import (
    MULTIPLE_RESULTS,
    OK,
    CommandError,
    RefusedError,
    error_of,
)
from latermq_proto.apache.rocketmq.v2 import service_pb2_grpc
from latermq_proto.latermq.v1 import (
    broker_pb2_grpc,
    dead_letter_pb2_grpc,
    group_pb2_grpc,
    limit_pb2_grpc,
    message_pb2_grpc,
    pending_pb2_grpc,
    topic_pb2_grpc,
    user_pb2_grpc,
)

_ENDPOINT: Final = re.compile(
    r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]/,\s]+)):(?P<port>[0-9]{1,10})"
)
CALL_TIMEOUT_S: Final = 30.0
_GOAWAY: Final = "GOAWAY received"  # in gRPC's words: somebody answered, and said why not
PAGE_SIZE_MAX: Final = 1000

Response = TypeVar("Response")
Metadata = tuple[tuple[str, str | bytes], ...]

_CHANNEL_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", "latermq-cli"),
]


def checked_endpoint(endpoint: str) -> tuple[str, int]:
    """Host (without brackets) and port.

    Raises:
        RefusedError: not HOST:PORT.
    """
    found = _ENDPOINT.fullmatch(endpoint.strip())
    if found is None:
        raise RefusedError(f"{endpoint!r} is not an endpoint such as 127.0.0.1:8081 or [::1]:8081")
    if not 1 <= int(found["port"]) <= 65535:
        raise RefusedError(f"{endpoint!r}: a port is a number from 1 to 65535")
    if found["v6"]:
        try:
            ipaddress.IPv6Address(found["v6"])
        except ValueError:
            raise RefusedError(f"{endpoint!r}: {found['v6']!r} is no IPv6 address") from None
    return found["v6"] or found["host"], int(found["port"])


def client_id() -> str:
    """Names this command in leases and attempt histories."""
    return f"latermq-cli@{socket.gethostname()}@{os.getpid()}"


def client_metadata() -> Metadata:
    """What apache.rocketmq.v2 requires of every caller."""
    return (
        ("x-mq-client-id", client_id()),
        ("x-mq-language", "PYTHON"),
        ("x-mq-client-version", "5.1.2"),
        ("x-mq-protocol", "GRPC_V2"),
    )


class Connection:
    """An open channel; use it as a context manager.

    Every method raises CommandError when the broker cannot be reached, and what `error_of` says
    for a status other than OK.
    """

    def __init__(self, endpoint: str) -> None:
        self.host, self.port = checked_endpoint(endpoint)
        self.endpoint = endpoint.strip()
        self._door = current_door()
        self._channel = open_channel(self._door, self.endpoint, list(_CHANNEL_OPTIONS))
        self._metadata = client_metadata()
        self.messaging: Any = service_pb2_grpc.MessagingServiceStub(self._channel)
        self.topics: Any = topic_pb2_grpc.TopicsStub(self._channel)
        self.groups: Any = group_pb2_grpc.GroupsStub(self._channel)
        self.limits: Any = limit_pb2_grpc.LimitsStub(self._channel)
        self.pending: Any = pending_pb2_grpc.PendingStub(self._channel)
        self.users: Any = user_pb2_grpc.UsersStub(self._channel)
        self.messages: Any = message_pb2_grpc.MessagesStub(self._channel)
        self.brokers: Any = broker_pb2_grpc.BrokersStub(self._channel)
        self.dead_letters: Any = dead_letter_pb2_grpc.DeadLettersStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(
        self,
        method: Callable[..., Response],
        request: object,
        *,
        metadata: Metadata = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Response:
        """The response, whose status is OK or MULTIPLE_RESULTS."""
        try:
            response = method(request, timeout=timeout_s, metadata=self._headers() + metadata)
        except grpc.RpcError as error:
            raise self.unreachable(error) from None
        check_status(response)
        return response

    def stream(
        self,
        method: Callable[..., Iterable[Response]],
        request: object,
        *,
        timeout_s: float | None = None,
    ) -> Iterator[Response]:
        """The stream's elements as they come; their statuses are the caller's to check."""
        try:
            yield from method(request, timeout=timeout_s, metadata=self._headers())
        except grpc.RpcError as error:
            raise self.unreachable(error) from None

    def each(
        self, method: Callable[..., Any], request: Any, field: str, limit: int
    ) -> Iterator[Any]:
        """At most `limit` items of a paged listing, page by page.

        `request` has page_size and page_token, which are set here; afterwards the token is empty
        unless there are more items.
        """
        left = limit
        while left > 0:
            request.page_size = min(PAGE_SIZE_MAX, left)
            response = self.call(method, request)
            items = getattr(response, field)
            left -= len(items)
            request.page_token = response.next_page_token
            yield from items
            if not request.page_token:
                return

    def pages(
        self, method: Callable[..., Any], request: Any, field: str, limit: int
    ) -> tuple[list[Any], bool]:
        """The items of `each` as a list, and whether there are more."""
        return list(self.each(method, request, field, limit)), bool(request.page_token)

    def _headers(self) -> Metadata:
        return self._metadata + self._door.signature()

    def unreachable(self, error: grpc.RpcError) -> CommandError:
        """What a failed call means, in words."""
        return call_failed(error, self.endpoint, encrypted=self._door.encrypted)


def call_failed(error: grpc.RpcError, endpoint: str, *, encrypted: bool) -> CommandError:
    """What it means, in words, that a call ended with something else than an answer."""
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE and _GOAWAY in (error.details() or ""):
        return CommandError(f"the broker at {endpoint} ended the connection: {error.details()}")
    if code is grpc.StatusCode.UNAVAILABLE and encrypted:
        return CommandError(
            f"no TLS with {endpoint}: nobody answers there, or not with TLS, or with a "
            "certificate that is not trusted; see --ca"
        )
    if code is grpc.StatusCode.UNAVAILABLE and speaks_tls(endpoint):
        return CommandError(
            f"no broker answers in clear text at {endpoint}, but one with TLS: say --tls, or "
            "--ca FILE to name whom to trust"
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        return CommandError(f"no broker answers at {endpoint}; is `latermq serve` running there?")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CommandError(f"the broker at {endpoint} did not answer in time")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return CommandError(f"the broker at {endpoint} takes no more at once: {error.details()}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return CommandError(
            f"what serves {endpoint} does not know this call: not LaterMQ, or older"
        )
    return CommandError(f"the call to {endpoint} failed: {error.details()} ({code.name})")


def check_status(response: Any) -> None:
    """Raise what a status other than OK or MULTIPLE_RESULTS means."""
    status = response.status
    if status.code not in (OK, MULTIPLE_RESULTS):
        raise error_of(status.code, status.message)
