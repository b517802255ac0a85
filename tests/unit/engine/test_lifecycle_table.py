"""The table of a message's life in docs/protocol.md is the code's, and each cell of it is done."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.delivery.leases.lease import TRANSITIONS, Event, State
from latermq_broker.engine.state.model import (
    DeadFilter,
    Failure,
    Outgoing,
    PendingFilter,
    TopicType,
)
from latermq_broker.errors import InvalidReceiptHandleError
from support.engine_rig import EngineRig

PROTOCOL: Final = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"
LEASE_MS: Final = 10_000
WAIT_MS: Final = 5_000
FAILURE: Final = Failure("ValueError", "no card")
EVENTS: Final = {
    "RECEIVE": Event.RECEIVE,
    "ACK": Event.ACK,
    "ACK behind another": Event.FOLLOW,
    "EXTEND": Event.EXTEND,
    "NACK": Event.NACK,
    "SUSPEND": Event.SUSPEND,
    "DUE": Event.DUE,
    "FORWARD": Event.FORWARD,
    "attempts used up": Event.EXHAUST,
}
NOTHING: Final = "–"  # noqa: RUF001
REPEAT: Final = "OK within the lease"
REFUSED: Final = "`INVALID_RECEIPT_HANDLE`"


def cells() -> Iterator[tuple[State, Event, str]]:
    """Give the table: of each state and event what the document says."""
    lines = PROTOCOL.read_text(encoding="utf-8").splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("| state | RECEIVE |"))
    events = [EVENTS[name] for name in _split(lines[head])[1:]]
    for line in lines[head + 2 :]:
        if not line.startswith("|"):
            return
        names, *words = _split(line)
        for state in names.partition(" (")[0].split(", "):
            before = ""
            for event, text in zip(events, words, strict=True):
                before = before if text == "same" else text
                yield State[state.upper()], event, before


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _state(text: str) -> State | None:
    """Return the state that a cell leads to; None: it leads to none."""
    word = text.split()[0].strip(",;").upper()
    return State[word] if word in State.__members__ else None


def test_the_table_is_the_code_s() -> None:
    table = list(cells())
    assert {event for _, event, _ in table} == set(Event)
    assert {state for state, _, _ in table} == set(State)
    written = {(state, event): _state(text) for state, event, text in table}
    assert {key: to for key, to in written.items() if to is not None} == TRANSITIONS


class Life(EngineRig):
    """A message in a group, `handle` as the last one who had it was told.

    Of those that are acknowledged behind another the other one is in flight before it.
    """

    def __init__(self, state: State, event: Event) -> None:
        ordered = state is State.ACKED or event is Event.FOLLOW
        super().__init__(strict=ordered)
        self.engine.groups.create(
            "billing", fifo=ordered, max_attempts=9, backoff=None, now_ms=self.now_ms
        )
        self.engine.topics.create("orders", TopicType.MIXED, 1, self.now_ms)
        names = ("before", "it") if ordered else ("it",)
        sent = [Outgoing("orders", b"", each.encode(), each, message_group="a") for each in names]
        self.engine.send(sent, self.now_ms)
        self.engine.write()
        *self.others, it = self.receive(lease_ms=LEASE_MS)
        self.handle = it.handle
        (*_, self.id) = self.engine._state.leases.deliveries
        self._reach(state)
        assert self.state is state

    @property
    def state(self) -> State:
        delivery = self.engine._state.leases.deliveries.get(self.id)
        if delivery is not None:
            return delivery.state
        return State.DEAD if self.engine.dead.scan("billing", DeadFilter()).letters else State.DONE

    def _reach(self, state: State) -> None:
        if state is State.READY:
            self.advance(LEASE_MS)
        elif state is State.BACKOFF:
            self._change(WAIT_MS, failure=FAILURE)
        elif state is State.DEAD:
            self.engine.forward("billing", self.handle, self.now_ms)
        elif state is State.ACKED:
            self._acknowledge()
        elif state is State.DONE:
            self.ack(*self.others)
            self._acknowledge()

    def do(self, event: Event) -> None:
        """Have it happen, by who can. Raises InvalidReceiptHandleError."""
        before = self.state
        if event is Event.RECEIVE:
            if before is State.ACKED:  # given again with the one before it
                self.advance(LEASE_MS)
            self.receive(lease_ms=LEASE_MS)
        elif event is Event.ACK and before is State.READY:
            ((item,), _) = self.engine.pending.page(PendingFilter(group="billing"), 9)
            self.engine.pending.cancel(item.pending_id, self.now_ms)
        elif event is Event.ACK and before is State.ACKED:
            self._acknowledge()  # a repeat
            assert self.state is State.ACKED
            assert self.ack(*self.others) == [True]
        elif event in (Event.ACK, Event.FOLLOW):
            self._acknowledge()
        elif event is Event.EXTEND:
            self._change(LEASE_MS)
        elif event is Event.NACK:
            self._change(WAIT_MS, failure=FAILURE)
        elif event is Event.SUSPEND:
            self._change(WAIT_MS, suspend=True)
        elif event is Event.DUE:
            self.advance(WAIT_MS if before is State.BACKOFF else LEASE_MS)
        elif event is Event.FORWARD:
            self.engine.forward("billing", self.handle, self.now_ms)
        elif event is Event.EXHAUST:
            self.engine.groups.alter(
                "billing", max_attempts=1, backoff=None, clear_backoff=False, now_ms=self.now_ms
            )
            if before is State.LEASED:
                self.advance(LEASE_MS)
            elif before is State.READY:
                self.receive()
        self.engine.write()

    def _acknowledge(self) -> None:
        (error,) = self.engine.ack("billing", [self.handle], self.now_ms)
        if error is not None:
            raise error

    def _change(
        self, wait_ms: int, *, suspend: bool = False, failure: Failure | None = None
    ) -> None:
        self.handle = self.engine.change_invisible(
            "billing", self.handle, wait_ms, self.now_ms, suspend=suspend, failure=failure
        )


@pytest.mark.parametrize(("state", "event", "text"), list(cells()))
def test_each_cell_is_what_happens(state: State, event: Event, text: str) -> None:
    life = Life(state, event)
    refused = False
    try:
        life.do(event)
    except InvalidReceiptHandleError:
        refused = True
    after = _state(text)
    assert life.state is (after or state)
    if after is not None or text.startswith(REPEAT):
        assert not refused
    elif text == REFUSED:
        assert refused
    else:
        assert text == NOTHING
    if text.startswith(REPEAT):
        life.advance(LEASE_MS)
        with pytest.raises(InvalidReceiptHandleError):
            life.do(event)


def test_a_crash_changes_no_state() -> None:
    """What is written, and what is not: the end of a wait."""
    for state, event, text in cells():
        if (after := _state(text)) is not None:
            life = Life(state, event)
            life.do(event)
            life.crash()
            life.advance(0)
            assert life.state is after, (state, event)
