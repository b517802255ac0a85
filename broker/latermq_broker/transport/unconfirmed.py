"""Answers that were sent and may not have arrived, if something is to be done when they did not.

    sent whole ──→ kept, with the count of bytes that ends it ──the peer's kernel has them──→ done
                     └── the connection breaks before ──→ lost: given back

The kernel counts what was acknowledged anyway (TCP_INFO). In clear text it is asked when some
answers are kept, not for each, and when the connection is lost. Under TLS no byte of ours has a
place among the kernel's, and its socket is gone when a loss is told: so it is asked each second
while answers are kept. What it acknowledged, a client that lives may still not have read; so may
who is behind a proxy. Where the kernel does not count all counts as arrived.
"""

import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

log = logging.getLogger("latermq.transport")

ASKED_FROM: Final = 4  # answers kept; then at twice as many as had not arrived
KEPT_MAX: Final = 256  # the oldest of more count as arrived
LOOK_S: Final = 1.0  # between two looks at a connection under TLS
ALL: Final = 1 << 62  # bytes
_ACKNOWLEDGED: Final = struct.Struct("=120xQ")  # tcpi_bytes_acked of struct tcp_info
# And tcpi_notsent_bytes, tcpi_bytes_sent, tcpi_bytes_retrans: of Linux 4.19 and later.
_COUNTS: Final = struct.Struct("=120xQ16xI52xQQ")


class Timer(Protocol):
    """What is done later."""

    def cancel(self) -> None: ...


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
            drop_arrived(self._kept, acknowledged_bytes(self._peer))
            self._ask_at = max(ASKED_FROM, 2 * len(self._kept))

    def confirm_all(self) -> None:
        """Take all for arrived: the connection ends in order, with what is still on its way."""
        self._kept.clear()

    def lose(self) -> None:
        """Do what is to be done for what did not arrive: the connection is lost."""
        drop_arrived(self._kept, acknowledged_bytes(self._peer))
        while self._kept:
            give_up(self._kept.popleft()[1])


class UnconfirmedUnderTls:
    """Keeps the same for a connection under TLS.

    What was written before a look ends with what the kernel was given by then, unless its buffer
    was full. So an answer is lost if the peer's kernel had not acknowledged that much at the next
    look, nor at the last. What was sent since the last look but one counts as arrived.

    Args:
        peer: its socket.
        later: has something done after so many seconds.
    """

    __slots__ = ("_given", "_later", "_overdue", "_peer", "_timer", "_written")

    def __init__(
        self, peer: socket.socket | None, later: Callable[[float, Callable[[], None]], Timer]
    ) -> None:
        self._peer = peer
        self._later = later
        self._timer: Timer | None = None
        self._written: deque[Callable[[], None]] = deque()  # since the last look
        self._given: deque[tuple[int, Callable[[], None]]] = deque()  # at one, and where that ends
        self._overdue = 0  # of those: the first so many had another look

    def add(self, lost: Callable[[], None], end: int) -> None:
        """Keep what is to be done if an answer is lost; where it ends is of no use here."""
        self._written.append(lost)
        if len(self._written) > KEPT_MAX:
            self._written.popleft()
        if self._timer is None:
            self._timer = self._later(LOOK_S, self._look)

    def confirm_all(self) -> None:
        """Take all for arrived: the connection ends in order, with what is still on its way."""
        self._written.clear()
        self._given.clear()
        self._overdue = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lose(self) -> None:
        """Do what is to be done for what did not arrive: the connection is lost."""
        counts = byte_counts(self._peer)
        if counts is not None:
            drop_arrived(self._given, counts.acknowledged)
            self._overdue = len(self._given)
        for _ in range(self._overdue):
            give_up(self._given.popleft()[1])
        self.confirm_all()

    def _look(self) -> None:
        """Ask the kernel: what it was given before has arrived, or is overdue."""
        self._timer = None
        counts = byte_counts(self._peer)
        if counts is None:
            self.confirm_all()
            return
        drop_arrived(self._given, counts.acknowledged)
        self._overdue = len(self._given)
        self._given.extend((counts.given, lost) for lost in self._written)
        self._written.clear()
        if self._given:
            self._timer = self._later(LOOK_S, self._look)


class ByteCounts(NamedTuple):
    """What a kernel tells of the bytes of a connection."""

    acknowledged: int  # by the peer's
    given: int  # to ours, sent or not


def drop_arrived(kept: deque[tuple[int, Callable[[], None]]], arrived: int) -> None:
    """Drop the answers that end with these bytes, and the oldest of too many."""
    while kept and (kept[0][0] <= arrived or len(kept) > KEPT_MAX):
        kept.popleft()


def give_up(lost: Callable[[], None]) -> None:
    """Do what is to be done for one lost answer; a failure keeps nothing from the others."""
    try:
        lost()
    except Exception:
        log.exception("nothing could be done for a lost answer")


def acknowledged_bytes(peer: socket.socket | None) -> int:
    """Count what the peer's kernel has of all that was sent; ALL where ours does not tell.

    A peer that spoke HTTP/2 has acknowledged something: who says 0 does not count.
    """
    info = tcp_info(peer, _ACKNOWLEDGED.size)
    if info is None:
        return ALL
    (count,) = _ACKNOWLEDGED.unpack(info)
    return count or ALL


def byte_counts(peer: socket.socket | None) -> ByteCounts | None:
    """Count what our kernel was given, and the peer's has; None where ours does not tell."""
    info = tcp_info(peer, _COUNTS.size)
    if info is None:
        return None
    acknowledged, not_sent, sent, sent_again = _COUNTS.unpack(info)
    if not acknowledged or not sent:
        return None
    return ByteCounts(acknowledged, sent - sent_again + not_sent)


def tcp_info(peer: socket.socket | None, size: int) -> bytes | None:
    """Read the first bytes of a socket's `struct tcp_info`; None where there are fewer."""
    if sys.platform != "linux" or peer is None or peer.fileno() < 0:
        return None
    try:
        info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:  # what runs programs for Linux need not know it
        return None
    return info if len(info) == size else None
