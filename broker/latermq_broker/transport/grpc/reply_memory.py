"""What waits to be read: bytes of answers, counted for each connection and for the whole broker.

    reserved ──answered──→ queued by windows, or ready ──written──→ in the socket's buffer ──→ gone
       └──────────────────────────── the call ends ───────────────────────────────────────────↗

Who makes a large answer asks for room first, and reserves what it gathers, so that nothing is
leased or read for a caller who does not read. A connection has room while it holds less than its
bound and less than is left to all: one slow reader gets half of the broker's bound, two a third
each, and there is always some left for who comes next.
"""

from itertools import islice
from typing import Final, Protocol

from latermq_broker.errors import TooManyRequestsError
from latermq_h2.http2.outbound import Outbound

KIB: Final = 1 << 10
MIB: Final = 1 << 20
SMALL_BYTES: Final = 16 * KIB  # a connection that holds no more is always answered
WOKEN_MAX: Final = 8  # of those who wait for room, each time that there is more
SMALL_SHARE_BYTES: Final = 1 * MIB  # beyond its bound, for small answers: acknowledgements


class Waiting(Protocol):
    """A call that answers in pieces."""

    cancelled: bool

    def wake(self) -> None: ...

    async def more_room(self) -> None:
        """Return when it is woken, or cancelled."""

    def reserve_reply(self, bytes_count: int) -> None: ...


class ReplyBudget:
    """Bounds the bytes of replies that are held for all connections of the broker.

    Args:
        bytes_max: on all connections together.
        connection_bytes_max: on one of them.
    """

    __slots__ = ("bytes_max", "connection_bytes_max", "held_bytes", "peak_bytes", "waiting")

    def __init__(self, bytes_max: int = 64 * MIB, connection_bytes_max: int = 32 * MIB) -> None:
        self.bytes_max = bytes_max
        self.connection_bytes_max = connection_bytes_max
        self.held_bytes = 0
        self.peak_bytes = 0  # until somebody looks
        self.waiting: dict[Waiting, None] = {}  # told when less is held, in order

    @property
    def scarce(self) -> bool:
        """Tell whether more than half of it is held."""
        return self.held_bytes > self.bytes_max // 2

    def change(self, bytes_count: int) -> None:
        """Count so many bytes more as held, or less; some who wait may be woken by less."""
        self.held_bytes += bytes_count
        if bytes_count > 0:
            if self.held_bytes > self.peak_bytes:
                self.peak_bytes = self.held_bytes
        elif self.waiting and not self.scarce:
            self.tell_some(WOKEN_MAX)

    def tell_some(self, count: int) -> None:
        """Tell so many of those who wait; each comes back if it still has to wait."""
        woken = list(islice(self.waiting, count))
        for waiting in woken:
            del self.waiting[waiting]
            waiting.wake()

    def tell_all(self) -> None:
        """Tell all who wait; now and then, lest those who were told last had gone."""
        if not self.scarce:
            self.tell_some(len(self.waiting))


class ConnectionReplies:
    """Counts reply bytes of one connection; those in its `Outbound` when `tell` is called."""

    __slots__ = ("_budget", "_counted", "_outbound", "_reserved", "buffered")

    def __init__(self, budget: ReplyBudget, outbound: Outbound) -> None:
        self.buffered = 0  # written, but not taken by the socket
        self._budget = budget
        self._outbound = outbound
        self._reserved = 0
        self._counted = 0  # of this connection in the budget

    @property
    def held(self) -> int:
        """Count the bytes that wait now."""
        return self._outbound.size + self._outbound.queued_bytes + self._reserved + self.buffered

    def tell(self) -> int:
        """Count what is held now; after every change of the output, once for each turn."""
        held = self.held
        if held != self._counted:
            self._budget.change(held - self._counted)
            self._counted = held
        return held

    def forget(self) -> None:
        """Count out all the connection held: it is over."""
        self._budget.change(-self._counted)
        self._counted = 0

    def room(self) -> int:
        """Count the bytes that a large answer may take, now; 0 or less: none."""
        held = self.held
        budget = self._budget
        free = budget.bytes_max - budget.held_bytes - held + self._counted
        return min(budget.connection_bytes_max, free) - held

    @property
    def crowded(self) -> bool:
        """Tell whether who answers in many pieces waits: half of the room is for others."""
        return self._budget.scarce or self.room() <= 0

    def check(self) -> int:
        """Return the room there is, in bytes.

        Raises:
            TooManyRequestsError: there is none.
        """
        room = self.room()
        if room <= 0:
            raise TooManyRequestsError(self.why())
        return room

    def why(self) -> str:
        """Say why there is no room, with the numbers."""
        budget = self._budget
        return (
            f"{self.held} bytes of answers wait to be read on this connection, at most "
            f"{budget.connection_bytes_max} may (http2.reply_bytes_max), and {budget.held_bytes} "
            f"on all, at most {budget.bytes_max} (server.reply_bytes_max): read them first"
        )

    async def wait(self, waiting: Waiting, bytes_count: int) -> None:
        """Wait until one more piece may be made, and reserve what it may take."""
        others = self._budget.waiting
        try:
            while self.crowded and not waiting.cancelled:
                others[waiting] = None
                await waiting.more_room()
        finally:
            others.pop(waiting, None)  # it may have been cancelled
        waiting.reserve_reply(bytes_count)

    def reserve(self, bytes_count: int) -> None:
        """Count what is gathered for an answer."""
        self._reserved += bytes_count
        self._counted += bytes_count
        self._budget.change(bytes_count)

    def release(self, bytes_count: int) -> None:
        """Let go of what was reserved: it is output by now, or was dropped; `tell` counts it."""
        self._reserved -= bytes_count

    @property
    def full(self) -> bool:
        """Tell whether not even small answers are made any more."""
        held = self.held
        if held <= SMALL_BYTES:
            return False
        budget = self._budget
        return (
            held > budget.connection_bytes_max + SMALL_SHARE_BYTES
            or budget.held_bytes > budget.bytes_max
        )
