"""Bytes to a broker and back: the seam under everything else.

`Transport` is one connection to one broker. It knows paths and bytes, no message of the protocol.
All its failures are errors of this package. Business errors are not its concern: they travel inside
the bytes.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, Protocol, TypeAlias

RESPONSE_BYTES_MAX: Final = 64 << 20
"""Bytes of one message of a broker's answer, inflated; a stream's answer has many messages."""

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]


class Stream(Protocol):
    """A stream in both directions."""

    async def write(self, data: bytes) -> None: ...

    async def read(self) -> bytes | None:
        """Return the next message, None at the orderly end."""

    def cancel(self) -> None: ...


class Transport(Protocol):
    """One connection to one broker. Timeouts are in seconds; None: as long as it takes.

    Raises, from every call: UnavailableError, RequestTimeoutError, and what else `Transport`
    forms can tell from a status of the connection itself.
    """

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes: ...

    def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]: ...

    def bidi_stream(self, path: str, metadata: Metadata) -> Stream: ...

    async def close(self) -> None: ...
