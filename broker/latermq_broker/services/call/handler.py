"""What a handler is: all that services and whatever carries their bytes know of each other.

A service is a table of handlers keyed by gRPC path. A handler takes the serialised request and a
`Call`, and returns serialised responses; it knows no socket, no HTTP/2, no grpc library. Any
transport serves any such table. Handlers may answer now (a value), later without a task (a
`Later`), or from a coroutine.

A handler ends a call with a gRPC status other than OK by raising `CallAborted`, and only for what
the protocol names: a business error is a status inside the response. Any other exception that
reaches a transport is a bug; the caller sees UNKNOWN and nothing of the inside.

`Extra` and `headers_first` are for tests and conformance servers only.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeVar

from latermq_broker.catalog.access import User
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import Ready
from latermq_h2.grpc_code import GrpcCode

Answer = TypeVar("Answer")


class CallAborted(Exception):
    """Ends the call with this gRPC status; `message` goes to the caller as it is.

    Args:
        ends_connection: the lean transport ends the call's connection instead, by a GOAWAY.
    """

    def __init__(self, code: GrpcCode, message: str, *, ends_connection: bool = False) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.ends_connection = ends_connection


class Extra(Protocol):
    """What a handler adds to its answer, before it answers."""

    compress: bool  # the answer's messages, if the caller takes gzip

    def add_header(self, name: str, value: str | bytes) -> None:
        """Send metadata before the answer: bytes under names that end in `-bin`.

        Raises:
            ValueError: not metadata, a reserved name, too much, or the headers are out.
        """

    def add_trailer(self, name: str, value: str | bytes) -> None:
        """Send metadata after the answer, or with the status that ends it. Raises ValueError."""


class Call(Protocol):
    """One call, as its transport shows it to a handler. Used on the event loop only."""

    user: User | None
    """Who signed it, as the guard found out; None where nobody is asked for a name."""

    @property
    def path(self) -> str:
        """Return `/package.Service/Method`."""

    @property
    def peer(self) -> str:
        """Return `host:port` of the caller, an IPv6 host in brackets; "" when there is none."""

    @property
    def local(self) -> str:
        """Return `host:port` on which the call came in; the host may be a wildcard like 0.0.0.0."""

    @property
    def connection_id(self) -> str:
        """Return an id, equal for calls of one connection as far as the transport can tell."""

    @property
    def certificate_name(self) -> str:
        """Return the common name of the caller's certificate, which our CA signed; "" without."""

    def metadata(self, name: str) -> str | None:
        """Read the first value of a text header (lower-case name); None when absent."""

    def metadata_bin(self, name: str) -> bytes | None:
        """Read the first value of a `-bin` header, decoded; None when absent."""

    def all_metadata(self, prefixes: tuple[str, ...] = ("",)) -> list[tuple[str, str | bytes]]:
        """List the headers whose names begin so, in order, `-bin` ones decoded, each value.

        Pseudo-headers are none.
        """

    def remaining_ms(self) -> int | None:
        """Count the milliseconds until the caller's deadline, at least 0.

        None without a deadline.
        """

    @property
    def cancelled(self) -> bool:
        """Tell whether its peer left (cancel, deadline, lost connection) before the whole reply."""

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the call becomes cancelled; at once if it already is.

        It never runs for a call whose whole reply was handed to the connection.
        """

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Run `callback` if the whole reply was handed to the connection, and is lost with it.

        The last one asked for counts. It is kept when the call is long over: it is to hold little.
        It runs only where the transport knows that the peer's machine has not got the reply.
        """

    def on_unheard(self, callback: Callable[[], None]) -> None:
        """Run `callback` if the connection breaks before its peer proves to have the whole reply.

        After `on_lost`, which runs for a reply that surely did not arrive. It is to hold little.
        """

    @property
    def extra(self) -> Extra:
        """Return what goes out beside the answer."""

    def reply_room(self) -> int:
        """Tell how many bytes an answer may gather now; ask before anything is leased for it.

        Raises:
            TooManyRequestsError: none: too much waits to be read already.
        """

    def reserve_reply(self, bytes_count: int) -> None:
        """Count what an answer will hold as waiting to be read, until it is handed over."""


Unary: TypeAlias = Callable[[bytes, Call], bytes | Later[bytes] | Awaitable[bytes]]
ServerStream: TypeAlias = Callable[
    [bytes, Call],
    Sequence[bytes] | Later[list[bytes]] | Awaitable[Sequence[bytes]] | AsyncIterator[bytes],
]
# Response headers go out when the call is accepted, before the first element (Rust waits for them).
BidiStream: TypeAlias = Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes]]


# From bytes to a request as its handler takes it; BadRequestError: it is none. b"" is an empty one.
Reader: TypeAlias = Callable[[bytes, Call], Any]
# What was read, its bytes and the call; of a stream the messages and the call.
Parsed: TypeAlias = Callable[..., Any]
# The elements that refuse a call by its head alone, now or later; or None. Its handler decides by
# the head, too.
Admit: TypeAlias = Callable[[Call], Sequence[bytes] | Later[list[bytes]] | None]


class MethodKind(Enum):
    UNARY = "unary"
    SERVER_STREAM = "server stream"
    BIDI_STREAM = "bidi stream"


@dataclass(frozen=True, slots=True)
class Method:
    """One entry of a table; made by the three constructors, so kind and handler agree."""

    kind: MethodKind
    handler: Unary | ServerStream | BidiStream
    large: bool = False  # its requests may have `server.request_bytes_max`
    small: bool = False  # its requests are never large, and are taken up to 64 KiB only
    admit: Admit | None = None  # asked before anything of a request is kept that is not whole
    reply_bytes: int = 0  # about what is gathered for an answer, or for an element of it: reserved
    parsed: Parsed | None = None  # the handler again, for who has read the request already
    read: Reader | None = (
        None  # as the handler does; there where `parsed` is, but of no bidi stream
    )
    public: bool = False  # whoever asks may have it: its calls never become known
    headers_first: bool = True  # of a stream's answer; else with its first element

    @classmethod
    def unary(
        cls,
        handler: Unary,
        *,
        large: bool = False,
        small: bool = False,
        admit: Admit | None = None,
        reply_bytes: int = 0,
        parsed: Parsed | None = None,
        read: Reader | None = None,
    ) -> "Method":
        return cls(MethodKind.UNARY, handler, large, small, admit, reply_bytes, parsed, read)

    @classmethod
    def server_stream(
        cls,
        handler: ServerStream,
        *,
        small: bool = False,
        reply_bytes: int = 0,
        parsed: Parsed | None = None,
        read: Reader | None = None,
        public: bool = False,
    ) -> "Method":
        return cls(
            MethodKind.SERVER_STREAM,
            handler,
            small=small,
            reply_bytes=reply_bytes,
            parsed=parsed,
            read=read,
            public=public,
        )

    @classmethod
    def bidi_stream(
        cls,
        handler: BidiStream,
        *,
        headers_first: bool = True,
        small: bool = False,
        parsed: Parsed | None = None,
        public: bool = False,
    ) -> "Method":
        return cls(
            MethodKind.BIDI_STREAM,
            handler,
            small=small,
            headers_first=headers_first,
            parsed=parsed,
            public=public,
        )


MethodTable: TypeAlias = dict[str, Method]


class Committer(Protocol):
    """What a service needs from the pump: the time, and to wait before it answers.

    Calling one of the last four is also what arms the write of this loop turn, so every handler
    that let the engine append does (and may drop what it returns if it answers nothing).
    """

    def now_ms(self) -> int:
        """Read the broker's clock; the only time a service may use."""

    def admit(self) -> None:
        """Call before `engine.send`.

        Raises:
            TooManyRequestsError: more than `store.unsynced_bytes_max` waits for disk or quorum.
        """

    def acknowledged(self, answer: Answer) -> Later[Answer]:
        """Give `answer` when all that was appended so far is acknowledged by the flush policy.

        Settled with StoreReadOnlyError when the write or the sync fails; the broker then goes down.
        """

    def written(self) -> Later[None]:
        """Settle when all that was appended so far is acknowledged by the flush policy."""

    def synced(self) -> Later[None]:
        """Settle when all that was appended so far is on the disk, or kept by others if these are
        to keep it, whatever the flush policy."""

    def leased(self) -> Later[None]:
        """Settle when all that was appended so far is in the file; with sync-strict, on disk;
        where others keep the log, when they have it."""


class ParkedReceives(Protocol):
    """The receives that wait for a message."""

    @property
    def waiting(self) -> int:
        """Count the receives that wait now."""

    def wake(self, ready: Ready) -> None:
        """Try again those that `ready` may concern; called after a write or a tick, on the loop."""

    def drain(self) -> None:
        """Answer all that wait with "no message", now; later ones do not wait any more."""
