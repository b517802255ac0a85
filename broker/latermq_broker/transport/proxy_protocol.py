"""The PROXY header (HAProxy's proxy-protocol.txt, versions 1 and 2): who is behind a balancer."""

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

V1_BYTES_MAX: Final = 107
V2_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
V2_HEAD: Final = struct.Struct(">12sBBH")
V2_BODY_BYTES_MAX: Final = 4_096
_V2_LOCAL: Final = 0x20
_V2_PROXY: Final = 0x21
_V2_TCP4: Final = 0x11
_V2_TCP6: Final = 0x21
HEADER_BYTES_MAX: Final = V2_HEAD.size + V2_BODY_BYTES_MAX


class ProxyError(ValueError):
    """It began like a PROXY header and is none."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """`size` bytes of input; `source` and `destination` are "" when it names none."""

    size: int
    source: str = ""
    destination: str = ""


def parse(data: bytes) -> ProxyHeader | None:
    """Parse the header at the start of `data`; None: it may be one, more bytes are needed.

    A header of size 0: the input does not begin with one. Raises ProxyError.
    """
    if data.startswith(V2_SIGNATURE[: len(data)]) and data:
        return _parse_v2(data) if len(data) >= V2_HEAD.size else None
    if data.startswith(b"PROXY "[: len(data)]) and data:
        return _parse_v1(data)
    return ProxyHeader(0) if data else None


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyError("a PROXY line too long")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if words[1:2] == ["UNKNOWN"]:
        return ProxyHeader(end + 2)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProxyError("not a PROXY line")
    _, _, source, destination, source_port, destination_port = words
    return ProxyHeader(
        end + 2, _joined(source, source_port), _joined(destination, destination_port)
    )


def _parse_v2(data: bytes) -> ProxyHeader | None:
    _, command, family, length = V2_HEAD.unpack_from(data)
    if length > V2_BODY_BYTES_MAX or command not in (_V2_LOCAL, _V2_PROXY):
        raise ProxyError("not a PROXY header of version 2")
    size = V2_HEAD.size + length
    if len(data) < size:
        return None
    body = data[V2_HEAD.size : size]
    if command == _V2_LOCAL or family not in (_V2_TCP4, _V2_TCP6):
        return ProxyHeader(size)
    width = 4 if family == _V2_TCP4 else 16
    if length < 2 * width + 4:
        raise ProxyError("a PROXY header without its addresses")
    source_port, destination_port = struct.unpack_from(">HH", body, 2 * width)
    return ProxyHeader(
        size,
        _joined(str(ipaddress.ip_address(body[:width])), str(source_port)),
        _joined(str(ipaddress.ip_address(body[width : 2 * width])), str(destination_port)),
    )


def _joined(host: str, port: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ProxyError("not an address") from None
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ProxyError("not a port")
    return f"[{address}]:{int(port)}" if address.version == 6 else f"{address}:{int(port)}"
