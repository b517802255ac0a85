"""Request header blocks, put together from parts that are encoded once."""

import base64
from collections.abc import Sequence
from typing import Final

from latermq_h2.hpack.encoder import encode, literal

KNOWN_MAX: Final = 512  # fields, paths and timeouts kept encoded
BLOCK_BYTES_MAX: Final = 16_384  # one HEADERS frame of the smallest size a peer may ask for
TIMEOUT_MS_MAX: Final = 99_999_999  # eight digits
BINARY: Final = "-bin"
VARYING: Final = frozenset({"x-mq-request-id"})  # in each call another; signatures last a second


class Blocks:
    """Makes the header blocks of requests to one authority."""

    def __init__(self, scheme: str, authority: str, user_agent: str) -> None:
        self._scheme = scheme.encode()
        self._authority = authority.encode()
        self._user_agent = user_agent.encode()
        self._heads: dict[str, bytes] = {}
        self._timeouts: dict[int, bytes] = {}
        self._fields: dict[tuple[str, str], bytes] = {}

    def block(
        self, path: str, metadata: Sequence[tuple[str, str | bytes]], timeout_ms: int | None
    ) -> bytes:
        """Encode a whole block of headers.

        What is alike from call to call stands first, so that a decoder knows it again.

        Raises:
            ValueError: a name or value that may not travel, or more than `BLOCK_BYTES_MAX`.
        """
        head = self._heads.get(path) or self._learn_head(path)
        if timeout_ms is not None:
            head += self._timeouts.get(timeout_ms) or self._learn_timeout(timeout_ms)
        known = self._fields.get
        fields = [known(each) or self._learn_field(*each) for each in metadata]  # type: ignore[arg-type]
        block = head + b"".join(fields)
        if len(block) > BLOCK_BYTES_MAX:
            raise ValueError(
                f"headers of {len(block)} bytes, at most {BLOCK_BYTES_MAX} can be sent"
            )
        return block

    def _learn_head(self, path: str) -> bytes:
        if len(self._heads) >= KNOWN_MAX:
            self._heads.clear()
        head = self._heads[path] = encode(
            (
                (b":method", b"POST"),
                (b":scheme", self._scheme),
                (b":path", path.encode()),
                (b":authority", self._authority),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", self._user_agent),
            )
        )
        return head

    def _learn_timeout(self, timeout_ms: int) -> bytes:
        if len(self._timeouts) >= KNOWN_MAX:
            self._timeouts.clear()
        shown = min(max(timeout_ms, 1), TIMEOUT_MS_MAX)
        block = self._timeouts[timeout_ms] = literal(b"grpc-timeout", b"%dm" % shown)
        return block

    def _learn_field(self, name: str, value: str | bytes) -> bytes:
        encoded = _field(name, value)
        if isinstance(value, str) and name not in VARYING:
            if len(self._fields) >= KNOWN_MAX:
                self._fields.clear()
            self._fields[name, value] = encoded
        return encoded


def _field(name: str, value: str | bytes) -> bytes:
    if not name or name != name.lower() or not name.isascii() or not name.isprintable():
        raise ValueError(f"not the name of a header: {name!r}")
    if name.endswith(BINARY):
        raw = value if isinstance(value, bytes) else value.encode()
        return literal(name.encode(), base64.b64encode(raw).rstrip(b"="))
    if isinstance(value, bytes):
        raise ValueError(f"header {name}: bytes need a name that ends with {BINARY}")
    if not value.isascii() or (value and not value.isprintable()):
        raise ValueError(f"header {name}: {value!r} is not printable ASCII")
    return literal(name.encode(), value.encode())
