"""A client for HTTP/2 connections that exist only in memory: frames in, frames out, and a sink.

Everything is bytes and virtual milliseconds; nothing here opens a socket.
"""

import struct
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config
from latermq_h2.hpack.encoder import encode
from latermq_h2.hpack.fields import Field
from latermq_h2.http2 import frames
from latermq_h2.http2.connection import Connection
from latermq_h2.http2.control import KEEPALIVE_PING
from latermq_h2.http2.request import RequestHead
from latermq_h2.http2.stream import Stream

REQUEST = encode(
    [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/M"), (b":authority", b"h"),
     (b"te", b"trailers"), (b"content-type", b"application/grpc")]
)  # fmt: skip
HELLO = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)
SETTINGS_ACK = frames.frame(frames.SETTINGS, frames.ACK, 0)
OPEN_WINDOWS = frames.frame(
    frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)
) + frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def code(self) -> int:
        """Of RST_STREAM and GOAWAY."""
        start = 4 if self.kind == frames.GOAWAY else 0
        return int.from_bytes(self.payload[start : start + 4], "big")


def parse(data: bytes) -> list[Frame]:
    """Whole frames only; anything left over is an error of the server."""
    found = []
    position = 0
    while position < len(data):
        high, low, kind, flags, stream_id = frames.HEAD.unpack_from(data, position)
        end = position + 9 + (high << 8 | low)
        assert end <= len(data)
        found.append(Frame(kind, flags, stream_id, data[position + 9 : end]))
        position = end
    return found


def headers(stream_id: int, *, end: bool = False, block: bytes = REQUEST) -> bytes:
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frames.frame(frames.HEADERS, flags, stream_id, block)


def data(stream_id: int, payload: bytes, *, end: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream_id, payload)


@dataclass
class Record:
    """What the sink was told of one stream."""

    head: RequestHead
    fields: list[Field]
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset_code: int | None = None
    completed: bool = False


class Echo:
    """A sink that answers each whole request with `answer`, or its body, if it is told to."""

    connection: Connection

    def __init__(self, *, answers: bool = True, answer: bytes | None = None) -> None:
        self.records: dict[int, Record] = {}
        self.roomy_ids: list[int] = []
        self._answers = answers
        self._answer = answer

    def opened(self, stream: Stream, head: RequestHead, fields: list[Field], ended: bool) -> None:
        self.records[stream.id] = Record(head, fields)
        stream.call = self.records[stream.id]
        if ended:
            self._finish(stream)

    def received(self, stream: Stream, data: bytes, ended: bool) -> None:
        stream.call.body += data
        self.connection.streams.consume(stream, len(data))
        if ended:
            self._finish(stream)

    def reset(self, stream: Stream, code: int) -> None:
        stream.call.reset_code = code

    def roomy(self, stream: Stream) -> None:
        self.roomy_ids.append(stream.id)

    def completed(self, stream: Stream) -> None:
        stream.call.completed = True

    def _finish(self, stream: Stream) -> None:
        stream.call.ended = True
        if self._answers:
            body = bytes(stream.call.body) if self._answer is None else self._answer
            self.connection.outbound.send_whole(
                stream, b"\x88", (body,), len(body), b"\x00\x01x\x010"
            )


class Peer:
    """One connection in memory, and the client on it.

    Args:
        hello: send the preface and empty SETTINGS first, and acknowledge the server's.
    """

    def __init__(
        self, sink: Any = None, *, hello: bool = True, age_ms_max: int = 0, **limits: Any
    ) -> None:
        self.now_ms = 1_000_000
        self.sink = sink or Echo()
        self.limits = replace(Http2Config(), **limits)
        self.connection = Connection(
            self.sink, self.limits, ServerConfig(), self.now_ms, age_ms_max
        )
        self.sink.connection = self.connection
        if hello:
            self.send(HELLO + SETTINGS_ACK)

    def send(self, data: bytes) -> list[Frame]:
        """Frames the server answers with."""
        self.connection.receive(data, self.now_ms)
        while self.connection.input_left:
            self.connection.receive(b"", self.now_ms)
        return self.take()

    def take(self) -> list[Frame]:
        found = b""
        while taken := self.connection.take():
            found += taken
        return parse(found)

    def wait(self, ms: int, *, alive: bool = True) -> list[Frame]:
        """Let time pass, deadline by deadline; `alive`: answer keepalive pings."""
        until_ms = self.now_ms + ms
        found = []
        while (due_ms := self.connection.next_deadline()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.connection.on_timer(self.now_ms)
            answer = self.take()
            found += answer
            for ping in answer:
                if alive and (ping.kind, ping.payload) == (frames.PING, KEEPALIVE_PING):
                    self.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
        self.now_ms = until_ms
        return found


def goaway_code(answer: list[Frame]) -> int | None:
    """Code of the last GOAWAY in an answer."""
    codes = [found.code for found in answer if found.kind == frames.GOAWAY]
    return codes[-1] if codes else None


def reset_codes(answer: list[Frame]) -> list[tuple[int, int]]:
    """Stream and code of each RST_STREAM in an answer."""
    return [(found.stream_id, found.code) for found in answer if found.kind == frames.RST_STREAM]
