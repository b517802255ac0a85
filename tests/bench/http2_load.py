"""A load generator that speaks just enough HTTP/2 to be cheap beside the server it measures.

Header blocks are those of the official Python client (grpc-core): a table of stable fields, eight
literals of which one, the request id, is new in every call; or the same block again and again.
"""

import asyncio
import struct
import time
import uuid
from collections import deque
from typing import Any, Final, Protocol

from latermq_h2.hpack.encoder import integer, literal
from latermq_h2.http2 import frames

WINDOW_LEFT_MIN: Final = 1 << 29
FRAME_BYTES: Final = 16_384
MARKER: Final = b"?" * 36

_STABLE: Final = (
    (b":authority", b"127.0.0.1:8081"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
    (b"user-agent", b"grpc-python-asyncio/1.71.2 grpc-c/46.0.0 (linux; chttp2)"),
)
_SIGNATURE: Final = (
    b"MQv2-HMAC-SHA1 Credential=key/RocketMQ, SignedHeaders=x-mq-date-time, Signature="
)
_METADATA: Final = (
    (b"x-mq-language", b"PYTHON"), (b"x-mq-protocol", b"v2"), (b"x-mq-client-version", b"5.1.2"),
    (b"x-mq-date-time", b"20261121T081700Z"), (b"x-mq-request-id", MARKER),
    (b"x-mq-client-id", b"host@4711@0@abcdefgh"), (b"x-mq-namespace", b"ns"),
    (b"authorization", _SIGNATURE + b"A" * 40),
)  # fmt: skip


class Script(Protocol):
    """What one slot of a connection asks, one call after the other."""

    done: int  # of what is counted: calls or messages

    def next(self, answer: bytes) -> tuple[bytes, bytes] | None:
        """(path, message) of the next call, given the body of the last answer; None: no more."""


class Blocks:
    """Header blocks with a dynamic table, as grpc-core makes them."""

    def __init__(self, *, constant: bool) -> None:
        self._table: list[tuple[bytes, bytes]] = []  # newest first
        self._known: dict[tuple[bytes, int], bytes] = {}
        tail = b"".join(literal(name, value) for name, value in _METADATA)
        self._before, _, self._after = tail.partition(MARKER)
        self._prefix = uuid.uuid4().hex[:20].encode()
        self._constant = constant

    def block(self, path: bytes, number: int) -> bytes:
        lead = self._known.get((path, len(self._table)))
        if lead is None:
            size = len(self._table)
            lead = b"\x83\x86" + b"".join(map(self._field, ((b":path", path), *_STABLE)))
            if len(self._table) == size:
                self._known[path, size] = lead
        request_id = b"%s%016d" % (self._prefix, 0 if self._constant else number)
        return b"".join((lead, self._before, request_id, self._after))

    def _field(self, field: tuple[bytes, bytes]) -> bytes:
        if field in self._table:
            return bytes((0x80 | 62 + self._table.index(field),))
        self._table.insert(0, field)
        name, value = field
        return b"\x40" + integer(len(name), 7) + name + integer(len(value), 7) + value


class Load(asyncio.Protocol):
    """One connection; each script has one call open at a time.

    Args:
        keep_answers: scripts look at what was answered.
        pause_s: before a script's next call; 0: none.
    """

    def __init__(
        self,
        scripts: list[Script],
        *,
        constant: bool = False,
        keep_answers: bool = False,
        pause_s: float = 0.0,
    ) -> None:
        self.latencies_us: list[float] = []
        self.failed = 0
        self._scripts = scripts
        self._blocks = Blocks(constant=constant)
        self._keep_answers = keep_answers
        self._pause_s = pause_s
        self._next_id = 1
        self._window = frames.WINDOW_DEFAULT
        self._stream_window = frames.WINDOW_DEFAULT
        self._rests: dict[int, list[Any]] = {}  # body not sent yet, window
        self._waiting: deque[tuple[Script, bytes, bytes]] = deque()
        self._open: dict[int, tuple[Script, float]] = {}
        self._bodies: dict[int, list[bytes]] = {}
        self._buffer = b""
        self._taken = 0
        self._transport: Any = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        settings = ((frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX), (frames.ENABLE_PUSH, 0))
        grow = frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT)
        transport.write(frames.PREFACE + frames.settings(settings) + grow)
        for index, script in enumerate(self._scripts):
            if self._pause_s:  # spread over the pause
                wait_s = self._pause_s * index / len(self._scripts)
                self._loop.call_later(wait_s, self._begin, script)
            else:
                self._ask(script, b"")
        self._send()

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        position, stop, out = 0, len(data), b""
        unpack = frames.HEAD.unpack_from
        while stop - position >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = unpack(data, position)
            start = position + frames.HEAD_BYTES
            end = start + (high << 8 | low)
            if end > stop:
                break
            if kind == frames.DATA:
                self._taken += end - start
                if self._keep_answers:
                    self._bodies.setdefault(stream_id, []).append(data[start:end])
            if kind <= frames.HEADERS and flags & frames.END_STREAM:
                self._ended(stream_id)
            elif kind == frames.WINDOW_UPDATE:
                self._grow(stream_id, int.from_bytes(data[start:end], "big"))
            elif kind == frames.SETTINGS and not flags & frames.ACK:
                # Before what it allows: a peer that hears of it later resets such streams.
                self._transport.write(frames.frame(kind, frames.ACK, 0, b""))
                for name, value in struct.iter_unpack(">HI", data[start:end]):
                    if name == frames.INITIAL_WINDOW_SIZE:
                        change, self._stream_window = value - self._stream_window, value
                        for waiting in list(self._rests):
                            self._grow(waiting, change)
            elif kind == frames.PING and not flags & frames.ACK:
                out += frames.frame(kind, frames.ACK, 0, data[start:end])
            elif kind in (frames.RST_STREAM, frames.GOAWAY):
                self.failed += 1
            position = end
        self._buffer = data[position:]
        if self._taken >= WINDOW_LEFT_MIN:
            out += frames.window_update(0, self._taken)
            self._taken = 0
        if out:
            self._transport.write(out)
        self._send()

    def _ended(self, stream_id: int) -> None:
        script, begun = self._open.pop(stream_id)
        now = time.perf_counter()
        self.latencies_us.append((now - begun) * 1e6)
        body = b"".join(self._bodies.pop(stream_id, ()))
        if self._pause_s:
            wait_s = max(0.0, begun + self._pause_s - now)
            self._loop.call_later(wait_s, self._begin, script, body)
        else:
            self._ask(script, body)

    def _begin(self, script: Script, answer: bytes = b"") -> None:
        self._ask(script, answer)
        self._send()

    def _ask(self, script: Script, answer: bytes) -> None:
        asked = script.next(answer)
        if asked is not None:
            self._waiting.append((script, *asked))

    def _send(self) -> None:
        out: list[bytes] = []
        now = time.perf_counter()
        while self._waiting and self._window > 0:
            script, path, message = self._waiting.popleft()
            stream_id = self._next_id
            self._next_id += 2
            block = self._blocks.block(path, stream_id)
            out += (frames.head(frames.HEADERS, frames.END_HEADERS, stream_id, len(block)), block)
            body = b"\0" + len(message).to_bytes(4, "big") + message
            self._rests[stream_id] = [body, self._stream_window]
            self._open[stream_id] = (script, now)
            self._send_rest(stream_id, out)
        if out:
            self._transport.write(b"".join(out))

    def _grow(self, stream_id: int, count: int) -> None:
        out: list[bytes] = []
        if stream_id == 0:
            self._window += count
            for waiting in list(self._rests):
                self._send_rest(waiting, out)
        elif stream_id in self._rests:
            self._rests[stream_id][1] += count
            self._send_rest(stream_id, out)
        if out:
            self._transport.write(b"".join(out))

    def _send_rest(self, stream_id: int, out: list[bytes]) -> None:
        """As much of a body as the windows allow."""
        rest = self._rests[stream_id]
        body, window = rest
        room = max(0, min(len(body), window, self._window))  # a window may be negative
        for at in range(0, room, FRAME_BYTES):
            piece = body[at : min(at + FRAME_BYTES, room)]
            last = frames.END_STREAM if at + len(piece) == len(body) else 0
            out += (frames.head(frames.DATA, last, stream_id, len(piece)), piece)
        self._window -= room
        if room == len(body):
            del self._rests[stream_id]
        else:
            rest[:] = body[room:], window - room
