"""What every lane needs to lease messages: how much goes into a reply, and who gets it."""

from collections.abc import Sequence

from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.model import ReceiveRequest
from latermq_broker.engine.state.state import EngineState
from latermq_broker.store.records.lease_records import LEASE_AUTO_RENEW
from latermq_broker.store.records.record import RecordType


class ReplyBudget:
    """What one reply may still carry: messages, and bytes; a first message always fits."""

    __slots__ = ("_bytes", "_empty", "_full", "_reserved", "count")

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self._bytes = size
        self._empty = True
        self._full = False
        self._reserved = 0

    def take(self, length: int) -> bool:
        """Tell whether a message of that length goes with it; after a refusal nothing does."""
        if not self.count:
            return False
        if length > self._bytes and not self._empty:
            self.count = 0
            self._full = True
            return False
        self._empty = False
        self.count -= 1
        self._bytes -= length
        return True

    def take_some(self, lengths: Sequence[int]) -> int:
        """Take as many messages of those lengths as fit, from the first on; return how many."""
        size, count = sum(lengths), len(lengths)
        if count > self.count or size > self._bytes:
            return next((at for at, length in enumerate(lengths) if not self.take(length)), count)
        self._empty = self._empty and not count
        self.count -= count
        self._bytes -= size
        return count

    def reserve(self, count: int) -> None:
        """Keep room for so many messages from those who come next, until `release`."""
        assert count >= 0
        self._reserved = min(count, self.count)
        self.count -= self._reserved

    def release(self) -> None:
        if not self._full:
            self.count += self._reserved
        self._reserved = 0


def lease_flags(request: ReceiveRequest) -> int:
    return LEASE_AUTO_RENEW if request.auto_renew else 0


def client_position(state: EngineState, journal: Journal, client_id: str, now_ms: int) -> int:
    """Return the position of the client's CLIENT record, written when there is none at hand."""
    position = state.clients.position(client_id)
    if position is None:
        position = journal.write(RecordType.CLIENT, client_id, now_ms)
    return position
