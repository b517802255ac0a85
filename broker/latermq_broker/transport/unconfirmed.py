"""Answers that were sent and may not have arrived, if something is to be done when they did not.

    sent whole ──→ kept, with the count of bytes that ends it ──the peer's kernel has them──→ done
                     └── the connection breaks before ──→ lost: given back

The kernel counts what was acknowledged anyway (TCP_INFO). It is asked when some answers are kept,
not for each, and when the connection is lost. What it acknowledged, a client that lives may still
not have read; so may who is behind a proxy. Nothing is known of bytes under TLS, nor where the
kernel does not count: there all counts as arrived.
"""

import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger("latermq.transport")

ASKED_FROM: Final = 4  # answers kept; then at twice as many as had not arrived
KEPT_MAX: Final = 256  # the oldest of more count as arrived
ALL: Final = 1 << 62  # bytes
_ACKNOWLEDGED: Final = struct.Struct("=120xQ")  # tcpi_bytes_acked of struct tcp_info


class Unconfirmed:
    """Keeps what is to be done for answers of one connection that may be lost with it.

    Args:
        peer: its socket, if all that is sent there is output of the connection.
    """

    __slots__ = ("_ask_at", "_kept", "_peer")

    def __init__(self, peer: socket.socket | None) -> None:
        self._peer = peer
        self._kept: deque[tuple[int, Callable[[], None]]] = deque()
        self._ask_at = ASKED_FROM

    def add(self, lost: Callable[[], None], end: int) -> None:
        """Keep what is to be done if an answer is lost that ends with this byte."""
        self._kept.append((end, lost))
        if len(self._kept) >= self._ask_at:
            self._confirm(acknowledged_bytes(self._peer))
            self._ask_at = max(ASKED_FROM, 2 * len(self._kept))

    def confirm_all(self) -> None:
        """Take all for arrived: the connection ends in order, with what is still on its way."""
        self._confirm(ALL)

    def lose(self) -> None:
        """Do what is to be done for what did not arrive: the connection is lost."""
        self._confirm(acknowledged_bytes(self._peer))
        while self._kept:
            _, lost = self._kept.popleft()
            try:
                lost()
            except Exception:
                log.exception("nothing could be done for a lost answer")

    def _confirm(self, arrived: int) -> None:
        kept = self._kept
        while kept and (kept[0][0] <= arrived or len(kept) > KEPT_MAX):
            kept.popleft()


def acknowledged_bytes(peer: socket.socket | None) -> int:
    """Count what the peer's kernel has of all that was sent; ALL where ours does not tell.

    A peer that spoke HTTP/2 has acknowledged something: who says 0 does not count.
    """
    if sys.platform != "linux" or peer is None or peer.fileno() < 0:
        return ALL
    try:
        info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
    except OSError:  # what runs programs for Linux need not know it
        return ALL
    if len(info) < _ACKNOWLEDGED.size:
        return ALL
    (count,) = _ACKNOWLEDGED.unpack(info)
    return count or ALL
