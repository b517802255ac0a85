"""How a command speaks to a broker: `latermq.admin`, every failure a sentence."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own log lines are not for users

import socket

from google.protobuf.message import Message

from latermq import Tls, admin
from latermq.admin import Endpoints, Method
from latermq.errors import LaterMQError, RequestError, UntrustedHostError
from latermq_cli.connection.chosen_shard import chosen_shard
from latermq_cli.connection.credentials import Access, current_access
from latermq_cli.connection.shards import Shards
from latermq_cli.connection.tls_probe import speaks_tls
from latermq_cli.terminal.failures import CommandError, RefusedError, error_of
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.latermq.v1 import cluster_pb2

_GOAWAY: Final = "GOAWAY"  # in gRPC's words: somebody answered, and said why not
CALL_TIMEOUT_S: Final = admin.CALL_TIMEOUT_S

Answer = TypeVar("Answer", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]
Opened = TypeVar("Opened")


def checked_endpoint(endpoint: str) -> tuple[str, int]:
    """Return host (without brackets) and port.

    Raises:
        RefusedError: not HOST:PORT.
    """
    try:
        return Endpoints.parse(endpoint).addresses[0]
    except ValueError as error:
        raise RefusedError(str(error)) from None


def client_id() -> str:
    """Return the name of this command in leases and attempt histories."""
    return f"latermq-cli@{socket.gethostname()}@{os.getpid()}"


def opened(
    connect: Callable[..., Opened], endpoint: str, access: Access, named_by: str = ""
) -> Opened:
    """Return what `connect`, one of `latermq.admin`, makes of what the user said.

    Args:
        named_by: what the user said, if a broker there named this endpoint.

    Raises:
        RefusedError: not HOST:PORT, or nothing that can be trusted.
    """
    checked_endpoint(endpoint)
    try:
        return connect(
            endpoint,
            access_key=access.access_key,
            secret=access.secret_key,
            tls=_tls_of(access),
            client_id=client_id(),
            named_by=(named_by or endpoint,),
        )
    except ValueError as error:
        raise RefusedError(str(error)) from None


def _tls_of(access: Access) -> bool | Tls:
    if access.skip_verify:
        return Tls(verify=False)
    if not access.ca:
        return access.tls
    try:
        tls = Tls(ca=Path(access.ca).expanduser())
        tls.context()
    except ValueError:
        raise RefusedError(f"--ca {access.ca} holds no certificate in PEM") from None
    except OSError as error:
        raise RefusedError(f"cannot read --ca {access.ca}: {error.strerror or error}") from None
    return tls


class Connection:
    """A broker and its services; use it as a context manager.

    Every method raises CommandError when the broker cannot be reached, and what `error_of` says
    for a status other than OK.
    """

    def __init__(self, endpoint: str, named_by: str = "") -> None:
        self.endpoint = endpoint.strip()
        self._named_by = named_by or self.endpoint
        self._access = current_access()
        self._admin = opened(admin.connect, endpoint, self._access, self._named_by)
        self._go_to(chosen_shard())
        self.shards = Shards(self, self._to)
        self.access_point = self._admin.access_point
        self.messaging = self._admin.messaging
        self.topics = self._admin.topics
        self.groups = self._admin.groups
        self.limits = self._admin.limits
        self.pending = self._admin.pending
        self.users = self._admin.users
        self.messages = self._admin.messages
        self.brokers = self._admin.brokers
        self.clients = self._admin.clients
        self.backups = self._admin.backups
        self.dead_letters = self._admin.dead_letters
        self.schedules = self._admin.schedules

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, and those to other shards."""
        self.shards.close()
        self._admin.close()

    def described(self) -> tuple[int, dict[int, str]]:
        """Return which shard this is, and where each is; (0, {}) of a broker that is alone."""
        request = cluster_pb2.DescribeClusterRequest(endpoints=self._admin.access_point)
        with self._errors_of_commands():
            try:
                answer = self._admin.call(self._admin.cluster.DescribeCluster, request)
            except LaterMQError as error:
                if error.grpc_code == GrpcCode.UNIMPLEMENTED:
                    return 0, {}
                raise
        addresses = {
            shard.number: str(admin.read_endpoints(shard.endpoints)) for shard in answer.shards
        }
        return answer.shard, addresses

    def _to(self, endpoint: str) -> "Connection":
        return Connection(endpoint, self._named_by)

    def _go_to(self, shard: int | None) -> None:
        """Speak to this shard, if one is named, instead of the one that was asked."""
        if shard is None:
            return
        own, addresses = self.described()
        if shard not in (addresses or {0: ""}):
            raise RefusedError(f"there is no shard {shard}: there are {len(addresses) or 1}")
        if addresses and shard != own:
            self._admin.close()
            self.endpoint = addresses[shard]
            self._admin = opened(admin.connect, self.endpoint, self._access, self._named_by)

    def call(
        self,
        method: Method[Answer],
        request: Message,
        *,
        metadata: Metadata = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        """Return the answer, whose status is OK or MULTIPLE_RESULTS."""
        with self._errors_of_commands():
            return self._admin.call(method, request, metadata=metadata, timeout_s=timeout_s)

    def stream(
        self, method: Method[Answer], request: Message, *, timeout_s: float | None = None
    ) -> Iterator[Answer]:
        """Yield the stream's elements as they come; their statuses are the caller's to check."""
        with self._errors_of_commands():
            yield from self._admin.stream(method, request, timeout_s=timeout_s)

    def answers(self, method: Method[Any], request: Any, field: str, limit: int) -> Iterator[Any]:
        """Yield the answers of a paged listing that have at most `limit` items together.

        `request` has page_size and page_token, which are set here; afterwards the token is empty
        unless there are more items.
        """
        with self._errors_of_commands():
            yield from self._admin.pages(method, request, field, limit)

    def each(self, method: Method[Any], request: Any, field: str, limit: int) -> Iterator[Any]:
        """Yield the items of `answers`."""
        for answer in self.answers(method, request, field, limit):
            yield from getattr(answer, field)

    def pages(
        self, method: Method[Any], request: Any, field: str, limit: int
    ) -> tuple[list[Any], bool]:
        """Return the items of `each` as a list, and whether there are more."""
        return list(self.each(method, request, field, limit)), bool(request.page_token)

    @contextmanager
    def _errors_of_commands(self) -> Iterator[None]:
        """Raise errors of the SDK as the command line's."""
        try:
            yield
        except LaterMQError as error:
            raise command_error(error, self.endpoint, self._access) from None


def command_error(error: LaterMQError, endpoint: str, access: Access) -> CommandError:
    """Return what an error of the SDK is here: a status, or a call that ended without one."""
    if not error.grpc_code and isinstance(error, RequestError):
        return error_of(error.code, error.message)
    if isinstance(error, UntrustedHostError):
        return RefusedError(str(error))
    return call_failed(error, endpoint, access)


def call_failed(error: LaterMQError, endpoint: str, access: Access) -> CommandError:
    """Return what it means, in words, that a call ended with something else than an answer."""
    code, details = error.grpc_code, error.grpc_text
    if code == GrpcCode.UNAVAILABLE:
        return _unavailable(details, endpoint, access)
    if code == GrpcCode.DEADLINE_EXCEEDED:
        return CommandError(f"the broker at {endpoint} did not answer in time")
    if code == GrpcCode.RESOURCE_EXHAUSTED:
        return CommandError(
            f"too much at once for the broker at {endpoint} or this command: {details}"
        )
    if code == GrpcCode.UNIMPLEMENTED:
        return CommandError(
            f"what serves {endpoint} does not know this call: not LaterMQ, or older"
        )
    name = GrpcCode(code).name if code in set(GrpcCode) else str(code)
    return CommandError(f"the call to {endpoint} failed: {details} ({name})")


def _unavailable(details: str, endpoint: str, access: Access) -> CommandError:
    if _GOAWAY in details:
        return CommandError(f"the broker at {endpoint} ended the connection: {details}")
    if access.skip_verify:
        return CommandError(f"no TLS at {endpoint}: {details}")
    if access.encrypted:
        return CommandError(
            f"no TLS with {endpoint}: nobody answers there, or not with TLS, or with a "
            "certificate that is not trusted; see --ca"
        )
    if speaks_tls(*checked_endpoint(endpoint)):
        return CommandError(
            f"no broker answers in clear text at {endpoint}, but one with TLS: say --tls, or "
            "--ca FILE to name whom to trust"
        )
    return CommandError(f"no broker answers at {endpoint}; is `latermq serve` running there?")


def check_status(answer: Any) -> None:
    """Raise what a status other than OK or MULTIPLE_RESULTS means."""
    status = answer.status
    if status.code not in admin.FINE:
        raise error_of(status.code, status.message)
