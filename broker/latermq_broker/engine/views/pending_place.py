"""Where a listing of what waits has come to, and the token that says so to a client; and where to
look for what waits of one group."""

from contextlib import suppress
from itertools import islice
from typing import Final

from latermq_broker.delivery.halves import ID_BITS_MASK, parse_transaction_id
from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import BadRequestError, CorruptRecordError
from latermq_broker.store.records.message_records import decode_message_head
from latermq_broker.store.records.retention_records import first_position

GROUP_ROWS_MAX: Final = 100_000  # of deliveries that are looked at for a group: some 10 ms
OfGroup = tuple[list[tuple[int, int]], list[tuple[int, int]]]
_WAITING: Final = (State.LEASED, State.BACKOFF, State.READY)

# (due, 0: delayed | 1: delivery | 2: half, position | delivery id | where it was stored first)
Waiting = tuple[int, int, int]
BEFORE_ALL: Final = (-1, -1, -1)
# (row where a slice of ready retries begins | 0: all are merged | REST: the ready ones were listed,
# and now comes what waits still; where in that)
PageCursor = tuple[int, Waiting]
START: Final = (0, BEFORE_ALL)
REST: Final = 1 << 32  # no row has that number


def by_time(row: int) -> bool:
    """Tell whether all that comes behind is due later: not so between slices of ready retries."""
    return row in (0, REST)


def token_of(place: PageCursor) -> str:
    row, (due_ms, side, name) = place
    return f"{due_ms:x}-{side}-{name:x}" + (f"-{row:x}" if row else "")


def parse_token(token: str) -> PageCursor:
    """Decode a page token. Raises BadRequestError: not one of ours."""
    if not token:
        return START
    try:
        due, side, name, *row = token.split("-")
        (number,) = row or ["0"]
        return int(number, 16), (int(due, 16), int(side), int(name, 16))
    except ValueError:
        raise BadRequestError(f"page token {token[:40]!r} is not one of ours") from None


def parse_id(pending_id: str) -> tuple[Waiting | None, int]:
    """Decode a pending id into where it waits, and bits of the hash of its message's id.

    None: not one of ours. -1 for the bits: of an earlier version, which did not name them, or of a
    retry, whose delivery id no other life of a log has.
    """
    parts = pending_id.split("-")
    try:
        if parts[0] == "d" and len(parts) in (3, 4):
            bits = int(parts[3], 16) if len(parts) == 4 else -1
            return (int(parts[1], 16), 0, int(parts[2], 16)), bits
        if parts[0] == "r" and len(parts) == 2:
            return (0, 1, int(parts[1], 16)), -1
        transaction = parse_transaction_id(pending_id)
        if transaction is not None:
            return (0, 2, transaction[0]), transaction[1]
    except ValueError:
        pass
    return None, -1


def where_now(state: EngineState, named: Waiting, id_bits: int) -> Waiting | None:
    """Find a delayed message by where it stood when sent, and a time that it was to come at.

    An operator may have moved that time, and its record may have been rolled forward. In a log that
    was restored another message may wait there: `id_bits` tell, -1 for a name without them.
    """
    waiting = _where_now(state, named)
    if waiting is None or id_bits < 0:
        return waiting
    with suppress(CorruptRecordError):
        id_hash = decode_message_head(state.read(waiting[2]).payload).id_hash
        if id_hash & ID_BITS_MASK == id_bits:
            return waiting
    return None


def _where_now(state: EngineState, waiting: Waiting) -> Waiting | None:
    due_ms, _, position = waiting
    moved = state.timers_moved.wait_of(position)
    if moved is not None and state.timer.contains(*moved):
        return moved[0], 0, moved[1]
    if state.timer.contains(due_ms, position):
        return waiting
    entries_max = state.config.delivery.bounds.page_entries_max
    for due, at in islice(state.timer.in_order((due_ms, -1)), entries_max):
        if due != due_ms:
            break
        with suppress(CorruptRecordError):
            if first_position(state.store.log.read(at)) == position:
                return due_ms, 0, at
    return None


def waits_of_group(state: EngineState, name: str) -> OfGroup | None:
    """Find what waits of a group: (ready, armed), as `Deliveries.waits_of` says.

    None: there is none of that name, or to look at all deliveries for it would take long.
    """
    group, leases = state.catalog.group(name), state.leases
    if group is None or leases.slab.rows > GROUP_ROWS_MAX:
        return None
    if leases.count(State.READY) > state.config.delivery.bounds.page_entries_max:
        return None
    own = (each for key, each in state.subscriptions.items() if key[0] == group.id)
    if not any(each.counts[waiting] for each in own for waiting in _WAITING):
        return [], []
    return leases.deliveries.waits_of((group.id, 0))
