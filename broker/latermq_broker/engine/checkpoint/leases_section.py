"""The deliveries as a checkpoint section: the slab's columns, one after the other, and back.

    0       4     8       12       16     20  24        40       little-endian
    | format| rows| places| holders| ready| pad| places… | holders… | columns… | ready…

    places     {group u32, topic u32, queue u16, pad u16, offset's high half u32, tag hash u64,
               order key u64}
    holders    {client u64, auto_renew u8, 7 pad}; place and holder 0 are not written
    columns    of `slab.KEPT_COLUMNS`, in that order, `rows` numbers each; a row in state 0 is free
    ready      rows, u32 each: those in the state READY, lane by lane, in the order of their lane

Rows are counted from 1, as in the slab. What can be told from the rest is not written: the index
by id, rings, how often a place is named.
"""

import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from latermq_broker.delivery.leases.columns import NUMBER_BYTES, Numbers, numbers, swapped
from latermq_broker.delivery.leases.lease import IN_HAND, STATES, Delivery
from latermq_broker.delivery.leases.renewals import margin_ms
from latermq_broker.delivery.leases.slab import KEPT_COLUMNS, Holder, Place, Slab
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import UnsupportedFormatError

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<IIIII4x")
assert _HEAD.size == 24
_PLACE: Final = struct.Struct("<IIHxxIQQ")
assert _PLACE.size == 32
_HOLDER: Final = struct.Struct("<QB7x")
assert _HOLDER.size == 16
_SPARSE: Final = 8  # free rows are left out when there are so many times more rows than deliveries


def encode_leases(state: EngineState) -> bytes:
    slab = state.leases.slab
    rows: Sequence[int] = range(1, slab.rows + 1)
    if len(slab) * _SPARSE < slab.rows:
        rows = array("I", slab.live())
    ready = [
        1 + bisect_left(rows, delivery.row)
        for subscription in state.subscriptions.values()
        for delivery in subscription.ready
    ]
    places, holders = slab.places.values[1:], slab.holders.values[1:]
    return b"".join(
        (
            _HEAD.pack(FORMAT, len(rows), len(places), len(holders), len(ready)),
            *(_PLACE.pack(*place) for place in places),
            *(_HOLDER.pack(holder.client, holder.auto_renew) for holder in holders),
            *(_picked(slab, name, rows) for name in KEPT_COLUMNS),
            swapped("I", array("I", ready).tobytes()),
        )
    )


def restore_leases(state: EngineState, section: bytes) -> None:
    """Into a state without deliveries. Raises UnsupportedFormatError, before anything changed."""
    format_, rows, place_count, holder_count, ready_count = _HEAD.unpack_from(section)
    if format_ != FORMAT:
        raise UnsupportedFormatError(
            f"the deliveries of this checkpoint have format {format_}, this version reads "
            f"{FORMAT}: start the newer version of latermq; nothing was changed"
        )
    at = _HEAD.size
    packed = section[at : (at := at + place_count * _PLACE.size)]
    places = map(Place._make, _PLACE.iter_unpack(packed))
    holders: list[Holder] = []
    for client, auto_renew in _HOLDER.iter_unpack(
        section[at : (at := at + holder_count * _HOLDER.size)]
    ):
        name = state.client_name(client) if client else ""
        holders.append(Holder(client, name, bool(auto_renew)))
    columns: dict[str, Numbers] = {}
    for name, code in KEPT_COLUMNS.items():
        size = rows * NUMBER_BYTES[code]
        columns[name] = numbers(code, swapped(code, section[at : (at := at + size)]))
    ready = numbers("I", swapped("I", section[at : at + 4 * ready_count]))
    state.leases.load(columns, places, holders)
    take_up(state, array("I", state.leases.slab.live()), ready)


def take_up(state: EngineState, rows: Sequence[int], ready: Iterable[int]) -> None:
    """What follows from deliveries that are in the slab, in the states they had.

    Args:
        ready: those of them that stand in lanes, in the order of their lanes.
    """
    leases, slab, uses = state.leases, state.leases.slab, state.uses
    counted = Counter((slab.place[row], slab.state[row]) for row in rows)
    for (number, state_number), count in counted.items():
        place = slab.places.values[number]
        subscription = state.subscription(place.group_id, place.topic_id)
        subscription.counts[STATES[state_number]] += count
    batch: list[int] = []  # rows with the same deadline: most often those of one lease
    due = (0, 0)
    if rows:
        uses.hold_all([slab.position[row] for row in rows])
    for row in rows:
        if slab.first_attempt[row]:
            uses.chain(slab.first_attempt[row])
        place = slab.places.values[slab.place[row]]
        if place.order_key:
            _take_up_in_order(state, Delivery(slab, row))
        if slab.state[row] in IN_HAND:
            deadline_ms = slab.deadline_ms[row]
            when = (deadline_ms, margin_ms(Delivery(slab, row), deadline_ms))
            if batch and when != due:
                leases.deadlines.arm_all(batch, *due)
                batch = []
            due = when
            batch.append(row)
    if batch:
        leases.deadlines.arm_all(batch, *due)
    for row in ready:
        delivery = Delivery(slab, row)
        if delivery.order_key:
            continue  # an older version names them too
        state.subscription(delivery.group_id, delivery.topic_id).ready.append(delivery)


def _take_up_in_order(state: EngineState, delivery: Delivery) -> None:
    gate = state.subscription(delivery.group_id, delivery.topic_id).ordered()
    gate.enter(delivery.order_key, delivery.offset, delivery.id)
    if delivery.state in IN_HAND:
        gate.seize(delivery.order_key)


def _picked(slab: Slab, name: str, rows: Sequence[int]) -> bytes:
    column = slab.columns()[name]
    if isinstance(rows, range):
        return swapped(KEPT_COLUMNS[name], column.tobytes())
    numbers = array(KEPT_COLUMNS[name], (column[row - 1] for row in rows))
    return swapped(numbers.typecode, numbers.tobytes())
