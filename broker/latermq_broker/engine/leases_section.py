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
import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from latermq_broker.delivery.lease import Delivery, State
from latermq_broker.delivery.slab import KEPT_COLUMNS, Holder, Place
from latermq_broker.engine.apply_deliveries import DeliveryApplier
from latermq_broker.engine.state import EngineState
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
            *(_picked(column, rows) for column in slab.columns().values()),
            _little(array("I", ready)),
        )
    )


def restore_leases(state: EngineState, deliveries: DeliveryApplier, section: bytes) -> None:
    """Into a state without deliveries. Raises UnsupportedFormatError, before anything changed."""
    format_, rows, place_count, holder_count, ready_count = _HEAD.unpack_from(section)
    if format_ != FORMAT:
        raise UnsupportedFormatError(
            f"the deliveries of this checkpoint have format {format_}, this version reads "
            f"{FORMAT}: start the newer version of latermq; nothing was changed"
        )
    at = _HEAD.size
    slab = state.leases.slab
    packed = section[at : (at := at + place_count * _PLACE.size)]
    places = map(Place._make, _PLACE.iter_unpack(packed))
    holders: list[Holder] = []
    for client, auto_renew in _HOLDER.iter_unpack(
        section[at : (at := at + holder_count * _HOLDER.size)]
    ):
        name = state.client_name(client) if client else ""
        holders.append(Holder(client, name, bool(auto_renew)))
    columns: dict[str, array[int]] = {}
    for name, code in KEPT_COLUMNS.items():
        size = rows * array(code).itemsize
        columns[name] = _from_little(code, section[at : (at := at + size)])
    ready = _from_little("I", section[at : at + 4 * ready_count])
    state.leases.load(columns, places, holders)
    for row in slab.live():
        delivery = Delivery(slab, row)
        if delivery.state is not State.READY or delivery.order_key:
            deliveries.restore_delivery(delivery)
    for row in ready:
        deliveries.restore_delivery(Delivery(slab, row))


def _picked(column: "array[int]", rows: Sequence[int]) -> bytes:
    if isinstance(rows, range):
        return _little(column[1:])
    return _little(array(column.typecode, map(column.__getitem__, rows)))


def _little(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _from_little(code: str, data: bytes) -> "array[int]":
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
