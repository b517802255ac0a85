"""All deliveries as a checkpoint section: the slab's columns, one after the other, and back.

    0       4     8       12       16     20  24        40       little-endian
    | format| rows| places| holders| ready| pad| places… | holders… | columns… | ready…

    places     {group u32, topic u32, queue u16, redrive u16, offset's high half u32, tag hash u64,
               order key u64, origin's topic u32, origin's queue u16, pad u16}; the three of what
               was not redriven are 0. Format 1 has a pad for redrive, and ends with the order key
    holders    {client u64, auto_renew u8, 7 pad}; place and holder 0 are not written
    columns    of `slab.KEPT_COLUMNS`, in that order, `rows` numbers each; a row in state 0 is free
    ready      rows, u32 each: those in the state READY, lane by lane, in the order of their lane

Rows are counted from 1, as in the slab. What can be told from the rest is not written: the index
by id, rings, how often a place is named. Older versions wrote a struct for each: only read.
"""

import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from latermq_broker.delivery.leases.columns import NUMBER_BYTES, Numbers, numbers, swapped
from latermq_broker.delivery.leases.lease import IN_HAND, STATES, Delivery, State
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.renewals import margin_ms
from latermq_broker.delivery.leases.shared import DeliveryKey, Holder, Origin
from latermq_broker.delivery.leases.slab import KEPT_COLUMNS, Slab
from latermq_broker.errors import UnsupportedFormatError

FORMAT: Final = 2
_WITHOUT_ORIGIN: Final = 1  # the format that says of no delivery that it was redriven: only read
_HEAD: Final = struct.Struct("<IIIII4x")
assert _HEAD.size == 24
_PLACE: Final = struct.Struct("<IIHHIQQIHxx")
assert _PLACE.size == 40
_OLD_PLACE: Final = struct.Struct("<IIHxxIQQ")
assert _OLD_PLACE.size == 32
_HOLDER: Final = struct.Struct("<QB7x")
assert _HOLDER.size == 16
_SPARSE: Final = 8  # free rows are left out when there are so many times more rows than deliveries
#  old  0   8         16      24        32           40         48      56
#       | id| position| offset| tag_hash| deadline_ms| leased_ms| client| last_attempt|
#       64             72      76      80      84          88        90       92     93          94
#       | first_attempt| group | topic | length| generation| queue_id| attempt| state| auto_renew|
#       94        95  96
#       | renewals| pad
_OLD: Final = struct.Struct("<QQqQQQQQQIIIIHHBBBx")
assert _OLD.size == 96

ClientNames = Callable[[int], str]  # by the position of the CLIENT record


class Census(NamedTuple):
    """All deliveries, for those who keep count."""

    counts: Mapping[tuple[DeliveryKey, State], int]
    positions: list[int]
    first_attempts: list[int]  # of those that have one
    ordered: list[Delivery]  # of message groups


def encode_leases(leases: Leases, ready: Iterable[Delivery]) -> bytes:
    """Encode all deliveries; `ready` stand in lanes, in the order of their lanes."""
    slab = leases.slab
    rows: Sequence[int] = range(1, slab.rows + 1)
    if len(slab) * _SPARSE < slab.rows:
        rows = array("I", slab.live())
    in_lanes = array("I", [1 + bisect_left(rows, delivery.row) for delivery in ready])
    places, holders = slab.places.values[1:], slab.holders.values[1:]
    assert len(rows) >= len(slab)
    return b"".join(
        (
            _HEAD.pack(FORMAT, len(rows), len(places), len(holders), len(in_lanes)),
            *map(_packed_place, places),
            *(_HOLDER.pack(holder.client, holder.auto_renew) for holder in holders),
            *(_picked(slab, name, rows) for name in KEPT_COLUMNS),
            swapped("I", in_lanes.tobytes()),
        )
    )


def says_redriven(section: bytes) -> bool:
    """Tell whether the section says which deliveries were redriven: format 1 does not."""
    format_: int = _HEAD.unpack_from(section)[0]
    return format_ != _WITHOUT_ORIGIN


def decode_leases(leases: Leases, section: bytes, name_of: ClientNames) -> list[Delivery]:
    """Fill leases without deliveries, deadlines armed; return those that stood in lanes, in order.

    Raises UnsupportedFormatError, before anything changed.
    """
    format_, rows, place_count, holder_count, ready_count = _HEAD.unpack_from(section)
    if format_ not in (FORMAT, _WITHOUT_ORIGIN):
        raise UnsupportedFormatError(
            f"the deliveries of this checkpoint have format {format_}, this version reads "
            f"{_WITHOUT_ORIGIN} and {FORMAT}: start the newer version of latermq; nothing was "
            "changed"
        )
    at = _HEAD.size
    layout = _PLACE if format_ == FORMAT else _OLD_PLACE
    packed = section[at : (at := at + place_count * layout.size)]
    unpack = _place if format_ == FORMAT else _old_place
    places = [unpack(fields) for fields in layout.iter_unpack(packed)]
    packed = section[at : (at := at + holder_count * _HOLDER.size)]
    holders = [
        _holder(client, auto_renew, name_of) for client, auto_renew in _HOLDER.iter_unpack(packed)
    ]
    columns: dict[str, Numbers] = {}
    for name, code in KEPT_COLUMNS.items():
        size = rows * NUMBER_BYTES[code]
        columns[name] = numbers(code, swapped(code, section[at : (at := at + size)]))
    ready = numbers("I", swapped("I", section[at : at + 4 * ready_count]))
    leases.load(columns, places, holders)
    _arm_again(leases)
    deliveries = [Delivery(leases.slab, row) for row in ready]
    assert all(delivery.state is State.READY for delivery in deliveries)
    # An older version names those of a message group too.
    return [delivery for delivery in deliveries if not delivery.order_key]


def decode_old_leases(
    leases: Leases, section: bytes, order_keys: Mapping[int, int], name_of: ClientNames
) -> list[Delivery]:
    """Fill leases so from an old version's section; `order_keys` by id, of those that have one."""
    ready = []
    for fields in _OLD.iter_unpack(section):
        delivery = _decode_old(leases, fields, order_keys.get(fields[0], 0), name_of)
        if delivery.state is State.READY and not delivery.order_key:
            ready.append(delivery)
    _arm_again(leases)
    return ready


def came_by_redrive(leases: Leases, delivery: Delivery, origin: Origin, redrive: int) -> None:
    """Note, as format 1 does not: the delivery is the `redrive`-th, from 1, of that message."""
    slab, row = leases.slab, delivery.row
    assert redrive > 0
    assert delivery.offset == origin.offset
    number = slab.place[row]
    place = slab.places.values[number]._replace(
        origin_topic_id=origin.topic_id, origin_queue_id=origin.queue_id, redrive=redrive
    )
    slab.place[row] = slab.places.hold(place)
    slab.places.release(number)


def census(leases: Leases) -> Census:
    """Count all deliveries. Looks at every row."""
    slab = leases.slab
    places = slab.places.values
    rows = list(slab.live())
    counted = Counter((slab.place[row], slab.state[row]) for row in rows)
    ordered = {number for number, place in enumerate(places) if place.order_key}
    return Census(
        {(places[place], STATES[state]): count for (place, state), count in counted.items()},
        [slab.position[row] for row in rows],
        [slab.first_attempt[row] for row in rows if slab.first_attempt[row]],
        [Delivery(slab, row) for row in rows if slab.place[row] in ordered] if ordered else [],
    )


def _arm_again(leases: Leases) -> None:
    """Arm the deadlines of all that are in hand."""
    slab = leases.slab
    batch: list[int] = []  # rows with the same deadline: most often those of one lease
    due = (0, 0)
    for row in slab.live():
        if slab.state[row] not in IN_HAND:
            continue
        deadline_ms = slab.deadline_ms[row]
        when = (deadline_ms, margin_ms(Delivery(slab, row), deadline_ms))
        if batch and when != due:
            leases.deadlines.arm(batch, *due)
            batch = []
        due = when
        batch.append(row)
    if batch:
        leases.deadlines.arm(batch, *due)


def _decode_old(
    leases: Leases, fields: tuple[int, ...], order_key: int, name_of: ClientNames
) -> Delivery:
    (
        id_, position, offset, tag_hash, deadline_ms, leased_ms, client, last_attempt,
        first_attempt, group_id, topic_id, length, generation, queue_id, attempt, state_number,
        auto_renew, renewals,
    ) = fields  # fmt: skip
    delivery = leases.add(
        id=id_,
        group_id=group_id,
        topic_id=topic_id,
        queue_id=queue_id,
        offset=offset,
        position=position,
        length=length,
        tag_hash=tag_hash,
        order_key=order_key,
    )
    leases.lend(delivery, _holder(client, auto_renew, name_of), leased_ms)
    delivery.generation, delivery.attempt = generation, attempt
    delivery.last_attempt, delivery.first_attempt = last_attempt, first_attempt
    delivery.renewals = renewals
    leases.slab.deadline_ms[delivery.row] = deadline_ms
    leases.slab.state[delivery.row] = state_number
    return delivery


def _packed_place(place: DeliveryKey) -> bytes:
    group_id, topic_id, queue_id, high, tag_hash, order_key, origin_topic_id, origin_queue_id, n = (
        place
    )
    return _PLACE.pack(
        group_id, topic_id, queue_id, n, high, tag_hash, order_key, origin_topic_id, origin_queue_id
    )


def _place(fields: tuple[int, ...]) -> DeliveryKey:
    return DeliveryKey._make((*fields[:3], *fields[4:], fields[3]))


def _old_place(fields: tuple[int, ...]) -> DeliveryKey:
    return DeliveryKey._make((*fields, 0, 0, 0))


def _holder(client: int, auto_renew: int, name_of: ClientNames) -> Holder:
    return Holder(client, name_of(client) if client else "", bool(auto_renew))


def _picked(slab: Slab, name: str, rows: Sequence[int]) -> bytes:
    column = slab.columns()[name]
    if isinstance(rows, range):
        return swapped(KEPT_COLUMNS[name], column.tobytes())
    picked = array(KEPT_COLUMNS[name], (column[row - 1] for row in rows))
    return swapped(picked.typecode, picked.tobytes())
