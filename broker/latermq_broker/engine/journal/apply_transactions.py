"""Records → state: half messages through the table of `delivery/halves.py`. See `journal.py`.

While replay has no state yet (`store/dropped.py`) only the segments' counters are kept; the halves
come with the state.
"""

from latermq_broker.delivery.halves import HalfEvent, HalfMessage, HalfState, after
from latermq_broker.engine.journal.indexing import index_message
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.message_records import MessageHead, MessagePayload
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import MovePayload
from latermq_broker.store.records.transaction_records import (
    TXN_CHECKED,
    HalfSenderPayload,
    TxnPayload,
)


class TransactionApplier:
    """HALF, HALF_SENDER, TXN."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {
            RecordType.HALF: Applied(self.half, self.half),
            RecordType.HALF_SENDER: Applied(self.half_sender),
            RecordType.TXN: Applied(self.txn, self.txn),
        }

    def half(self, message: MessagePayload | MessageHead, at: Stamp) -> HalfMessage | None:
        """Add the half message and return it; None while replay has no state."""
        state = self._state
        index_message(state.store.index, message, at.position)
        state.uses.arm(at.position, at.length)
        if state.store.dropped.headless:
            return None
        half = HalfMessage(
            first=at.position,
            position=at.position,
            length=at.length,
            topic_id=message.topic_id,
            id_hash=message.id_hash,
            stored_ms=at.store_ms,
            due_ms=message.due_ms,
        )
        state.halves.add(half)
        return half

    def half_sender(self, payload: HalfSenderPayload, at: Stamp) -> None:
        del at
        halves = self._state.halves
        for position in payload.positions:
            half = halves.at(position)
            assert half is not None
            halves.sent_by(half, payload.sender)

    def txn(self, txn: TxnPayload, at: Stamp) -> None:
        state = self._state
        if txn.kind != TXN_CHECKED:
            end_half(state, txn.position, txn.length, HalfEvent.ROLLBACK)
        elif not state.store.dropped.headless:
            half = state.halves.at(txn.position)
            assert half is not None
            state.halves.checked(half, txn.checks, txn.due_ms)


def end_half(state: EngineState, position: int, length: int, event: HalfEvent) -> None:
    """End the half message that lies at `position`: it is committed or rolled back."""
    if state.is_gone(position):
        return
    state.uses.disarm(position, length)
    if state.timers_touched is not None:
        state.timers_touched.add(position)
    if state.store.dropped.headless:
        return
    half = state.halves.at(position)
    assert half is not None
    end = after(HalfState.PENDING, event)
    assert end is not None
    state.halves.end(half, end)


def move_half(state: EngineState, move: MovePayload, at: Stamp) -> None:
    """Move a half message that is pending and was rolled forward."""
    if not state.is_gone(move.old):
        state.uses.disarm(move.old, move.old_length)
    state.uses.arm(at.position, at.length)
    if not state.store.dropped.headless:
        half = state.halves.at(move.old)
        assert half is not None
        state.halves.move(half, at.position, at.length)
