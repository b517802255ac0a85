"""Frames: their numbers, their head, and how they are made.

0        3      4       5          9          big-endian; the id's highest bit is reserved
| length | type | flags | stream id | payload of `length` bytes
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEAD: Final = struct.Struct(">HBBBI")  # length in two pieces
HEAD_BYTES: Final = 9
assert HEAD.size == HEAD_BYTES

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

STREAM_ID_MAX: Final = (1 << 31) - 1
WINDOW_MAX: Final = (1 << 31) - 1
WINDOW_DEFAULT: Final = 65_535
FRAME_BYTES_DEFAULT: Final = 16_384
FRAME_BYTES_LIMIT: Final = (1 << 24) - 1
SETTING_BYTES: Final = 6
PING_BYTES: Final = 8


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):
    """The connection ends with this code; `reason` goes to the peer."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


def head(kind: int, flags: int, stream_id: int, length: int) -> bytes:
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return head(kind, flags, stream_id, len(payload)) + payload


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in values))


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream_id, code) + reason.encode())


def rst_stream(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def window_update(stream_id: int, bytes_count: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, bytes_count.to_bytes(4, "big"))


def four_bytes(payload: bytes, what: str) -> int:
    """Read the number that is all of a RST_STREAM or WINDOW_UPDATE. Raises ConnectionFault."""
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{what} is not 4 bytes")
    return payload[0] << 24 | payload[1] << 16 | payload[2] << 8 | payload[3]


def unpadded(payload: bytes) -> bytes:
    """Strip the padding from the payload of a PADDED frame. Raises ConnectionFault."""
    if not payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "padding without its length")
    end = len(payload) - payload[0]
    if end < 1:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1:end]
