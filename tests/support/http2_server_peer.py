"""A server for client connections that exist only in memory: what it sends is written by a test."""

from dataclasses import replace
from typing import Any

from latermq._connection.lean.caller import Call, Caller
from latermq._connection.lean.limits import ConnectionKeepalive, ConnectionLimits
from latermq_h2.hpack.encoder import encode
from latermq_h2.http2 import frames
from latermq_h2.messages import PREFIX
from support.http2_peer import Frame, parse

HEAD = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode([(b"grpc-status", b"0")])
SETTINGS = frames.frame(frames.SETTINGS, 0, 0)
SETTINGS_ACK = frames.frame(frames.SETTINGS, frames.ACK, 0)
PREFACE_BYTES = len(frames.PREFACE)


def message(body: bytes) -> bytes:
    return PREFIX.pack(0, len(body)) + body


def head(stream_id: int, block: bytes = HEAD, *, end: bool = False) -> bytes:
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frames.frame(frames.HEADERS, flags, stream_id, block)


def data(stream_id: int, payload: bytes, *, end: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream_id, payload)


def trailers(stream_id: int, block: bytes = TRAILERS) -> bytes:
    return head(stream_id, block, end=True)


def answer(stream_id: int, *bodies: bytes) -> bytes:
    """A whole one."""
    pieces = b"".join(map(message, bodies))
    return head(stream_id) + data(stream_id, pieces) + trailers(stream_id)


class ServerPeer:
    """A caller in memory, and the server of its connection.

    Args:
        greet: send SETTINGS first.
    """

    def __init__(self, *, greet: bool = True, **limits: Any) -> None:
        self.now_ms = 1_000_000
        self.caller = Caller(
            replace(ConnectionLimits(), **limits), ConnectionKeepalive(), self.now_ms
        )
        self.connection = self.caller.connection
        self.news: list[str] = []
        first = self.connection.take()
        assert first.startswith(frames.PREFACE)
        self.hello = parse(first[PREFACE_BYTES:])
        if greet:
            self.send(SETTINGS + SETTINGS_ACK)

    def call(self, request: bytes = b"hi", timeout_ms: int | None = 1_000) -> Call:
        deadline_ms = None if timeout_ms is None else self.now_ms + timeout_ms
        return self.caller.start(b"\x83", request, deadline_ms, lambda: self.news.append("call"))

    def stream(self) -> Call:
        return self.caller.start_stream(b"\x83", None, lambda: self.news.append("stream"))

    def send(self, data: bytes) -> list[Frame]:
        """Frames the client answers with."""
        self.connection.receive(data, self.now_ms)
        return self.take()

    def take(self) -> list[Frame]:
        found = b""
        while taken := self.connection.take():
            found += taken
        return parse(found)

    def wait(self, ms: int) -> list[Frame]:
        """Let time pass, deadline by deadline."""
        until_ms = self.now_ms + ms
        found = []
        while (due_ms := self.caller.next_deadline()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.caller.on_timer(self.now_ms)
            found += self.take()
        self.now_ms = until_ms
        return found
