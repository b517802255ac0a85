"""One HTTP/2 connection of an attacker: writes any bytes, and remembers what it was told.

It keeps to the windows it is given unless an attack is about them, and answers PINGs and SETTINGS,
so that the broker has no other reason to end it than the attack.
"""

import asyncio
import ssl
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

import hpack
from google.protobuf.message import DecodeError

from latermq_broker.services.auth.signature import sign
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.encoder import encode
from latermq_h2.http2 import frames
from latermq_h2.messages import COMPRESSED, PREFIX
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

MESSAGING: Final = "/apache.rocketmq.v2.MessagingService"
DATA_BYTES: Final = 16_384
WIDE: Final = ((frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX),)
SHUT: Final = ((frames.INITIAL_WINDOW_SIZE, 0),)


class Caller(NamedTuple):
    """A user who signs, or NOBODY."""

    access_key: str = ""
    secret: str = ""

    def fields(self) -> list[tuple[bytes, bytes]]:
        """The headers that sign a call, good for minutes."""
        if not self.access_key:
            return []
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = (
            f"MQv2-HMAC-SHA1 Credential={self.access_key}, SignedHeaders=x-mq-date-time, "
            f"Signature={sign(self.secret, date).hex()}"
        )
        return [(b"x-mq-date-time", date.encode()), (b"authorization", signed.encode())]


NOBODY: Final = Caller()


class Target(NamedTuple):
    """Whom to attack, and in whose name."""

    host: str
    port: int
    caller: Caller
    source: str = "127.0.0.2"  # who works has another address

    def by(self, caller: Caller) -> "Target":
        return self._replace(caller=caller)

    def at(self, source: str) -> "Target":
        return self._replace(source=source)


@dataclass
class Answer:
    """What came on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    ended: bool = False

    @property
    def message(self) -> bytes:
        """The first message of the body; b"" while it is not whole."""
        if len(self.body) < 5:
            return b""
        flag, length = PREFIX.unpack_from(self.body)
        if len(self.body) < 5 + length:
            return b""
        whole = bytes(self.body[5 : 5 + length])
        return zlib.decompress(whole, 31) if flag else whole

    @property
    def said(self) -> str:
        """In a word: the code in the answer, gRPC's own, or what it was reset with."""
        status = self.headers.get("grpc-status")
        if status not in (None, "0"):
            return f"{GrpcCode(int(status)).name}: {unquote(self.headers.get('grpc-message', ''))}"
        if self.message:
            # Most answers begin with a status, as this one does, which has nothing else.
            with suppress(DecodeError):
                code = service_pb2.HeartbeatResponse.FromString(self.message).status.code
                return str(definition_pb2.Code.Name(code)) if code else "answered"
        if self.reset is not None:
            return f"reset {frames.ErrorCode(self.reset).name}"
        return "answered" if self.ended else "open"


class Peer:
    """Made by `open`; a context manager that closes without a word.

    Args:
        reads: take what comes; else the socket's own buffers fill.
        grants: open windows for what comes.
    """

    def __init__(
        self,
        target: Target,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        grants: bool,
    ) -> None:
        self.target = target
        self.reader = reader
        self.writer = writer
        self.answers: dict[int, Answer] = {}
        self.goaway: str = ""
        self.gone = False
        self.kinds: Counter[int] = Counter()
        self.bytes_read = 0
        self._grants = grants
        self._decoder = hpack.Decoder()
        self._next_id = 1
        self._window = frames.WINDOW_DEFAULT
        self._stream_window = frames.WINDOW_DEFAULT  # of new streams
        self._windows: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        target: Target,
        *,
        settings: Iterable[tuple[int, int]] = WIDE,
        tls: bool = False,
        reads: bool = True,
        grants: bool = True,
    ) -> Self:
        context = insecure() if tls else None
        reader, writer = await asyncio.open_connection(
            target.host, target.port, ssl=context, local_addr=(target.source, 0)
        )
        peer = cls(target, reader, writer, grants=grants)
        peer.write(frames.PREFACE + frames.settings(settings))
        if grants:
            peer.write(frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT))
        if reads:
            peer._tasks.append(asyncio.create_task(peer._read()))
        return peer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.writer.transport.abort()

    # --- to say -----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self.gone:
            self.writer.write(data)

    async def flush(self) -> bool:
        """Wait until the socket takes more. False: the connection is over."""
        try:
            await self.writer.drain()
        except (ConnectionError, ssl.SSLError):
            self.gone = True
        return not self.gone

    def new_id(self) -> int:
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self.answers[stream_id] = Answer()
        return stream_id

    def call(
        self, path: str, *more: tuple[bytes, bytes], end: bool = False, client_id: str = ""
    ) -> int:
        """HEADERS of a new call by the target's caller; its stream."""
        stream_id = self.new_id()
        self.write(self.head(stream_id, path, *more, end=end, client_id=client_id))
        return stream_id

    def head(
        self,
        stream_id: int,
        path: str,
        *more: tuple[bytes, bytes],
        end: bool = False,
        client_id: str = "",
    ) -> bytes:
        fields = [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
            (b":authority", b"abuse"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
            (b"x-mq-client-id", (client_id or "abuse@1@0@x").encode()),
            (b"x-mq-language", b"PYTHON"), (b"x-mq-client-version", b"5.1.2"),
            *self.target.caller.fields(), *more,
        ]  # fmt: skip
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        return frames.frame(frames.HEADERS, flags, stream_id, encode(fields))

    def ask(self, path: str, request: Any, *more: tuple[bytes, bytes], client_id: str = "") -> int:
        """A whole call, with a message that fits the windows; its stream."""
        stream_id = self.call(path, *more, client_id=client_id)
        message = framed(request if isinstance(request, bytes) else request.SerializeToString())
        for at in range(0, len(message), DATA_BYTES):
            last = frames.END_STREAM if at + DATA_BYTES >= len(message) else 0
            self.write(frames.frame(frames.DATA, last, stream_id, message[at : at + DATA_BYTES]))
        return stream_id

    async def send(
        self, stream_id: int, data: bytes, *, end: bool = False, piece: int = DATA_BYTES
    ) -> bool:
        """DATA within the windows. False: the stream or the connection is over."""
        position = 0
        while position < len(data):
            room = min(self._window, self._stream_room(stream_id), piece, len(data) - position)
            if self.over(stream_id):
                return False
            if room <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            last = end and position + room == len(data)
            flags = frames.END_STREAM if last else 0
            self.write(
                frames.frame(frames.DATA, flags, stream_id, data[position : position + room])
            )
            self._window -= room
            self._windows[stream_id] = self._windows.get(stream_id, 0) + room
            position += room
            if not await self.flush():
                return False
        return True

    # --- to hear ----------------------------------------------------------------------------

    def over(self, stream_id: int) -> bool:
        answer = self.answers[stream_id]
        return self.gone or bool(self.goaway) or answer.ended or answer.reset is not None

    async def answered(self, stream_id: int, within_s: float) -> Answer:
        """The answer, whole or what there is of it by then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not self.over(stream_id):
                    self._changed.clear()
                    await self._changed.wait()
        return self.answers[stream_id]

    async def ended(self, within_s: float) -> str:
        """Wait for the connection's end: its GOAWAY's code, "closed", or "served"."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not (self.gone or self.goaway):
                    self._changed.clear()
                    await self._changed.wait()
        return self.goaway or ("closed" if self.gone else "served")

    @property
    def said(self) -> str:
        """In a few words: how the connection and its streams stand."""
        if self.goaway:
            return self.goaway
        if self.gone:
            return "closed"
        found = Counter(answer.said for answer in self.answers.values())
        return ", ".join(f"{count} {said}" for said, count in found.most_common(3))

    def _stream_room(self, stream_id: int) -> int:
        return self._stream_window - self._windows.get(stream_id, 0)

    async def _read(self) -> None:
        kept = b""
        try:
            while data := await self.reader.read(1 << 18):
                self.bytes_read += len(data)
                kept = self._frames(kept + data)
                self._changed.set()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            self.gone = True
            self._changed.set()

    def _frames(self, data: bytes) -> bytes:
        """What is left over of a cut frame."""
        position = 0
        while len(data) - position >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = frames.HEAD.unpack_from(data, position)
            end = position + frames.HEAD_BYTES + (high << 8 | low)
            if end > len(data):
                break
            self.kinds[kind] += 1
            self._on_frame(kind, flags, stream_id, data[position + frames.HEAD_BYTES : end])
            position = end
        return data[position:]

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        answer = self.answers.get(stream_id)
        if kind == frames.SETTINGS and not flags & frames.ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == frames.INITIAL_WINDOW_SIZE:
                    self._stream_window = value
            self.write(frames.frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.PING and not flags & frames.ACK:
            self.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.GOAWAY:
            code = frames.ErrorCode(int.from_bytes(payload[4:8]))
            self.goaway = f"GOAWAY {code.name} {payload[8:].decode(errors='replace')}".strip()
        elif kind == frames.WINDOW_UPDATE:
            more = int.from_bytes(payload)
            if stream_id:
                self._windows[stream_id] = self._windows.get(stream_id, 0) - more
            else:
                self._window += more
        elif kind == frames.HEADERS:
            fields = self._decoder.decode(payload)
            if answer is not None:
                answer.headers.update({str(name): str(value) for name, value in fields})
        elif kind == frames.RST_STREAM and answer is not None:
            answer.reset = int.from_bytes(payload)
        elif kind == frames.DATA:
            if answer is not None:
                answer.body += payload
            if self._grants and payload:
                self.write(frames.window_update(0, len(payload)))
        if answer is not None and kind in (frames.HEADERS, frames.DATA):
            answer.ended = answer.ended or bool(flags & frames.END_STREAM)


@cache
def insecure() -> ssl.SSLContext:
    """Trusts anybody, and speaks h2."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def framed(message: bytes, flag: int = 0) -> bytes:
    """With gRPC's prefix."""
    return PREFIX.pack(flag, len(message)) + message


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def zipped(pieces: Iterable[bytes], *, deflate: bool = False) -> bytes:
    """A compressed message, framed; its pieces are never whole in memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS if deflate else 31)
    packed = [packer.compress(piece) for piece in pieces]
    return framed(b"".join((*packed, packer.flush())), COMPRESSED)


GZIP: Final = (b"grpc-encoding", b"gzip")
DEFLATE: Final = (b"grpc-encoding", b"deflate")
