"""All deliveries there are: what goes through the table of `lease.py`, alone or many at once.

Whoever works with deliveries has their ids, or `Delivery` objects; the slab's rows and columns are
known to nobody outside `delivery/`. What is hot takes many at once and answers in columns.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple, TypeAlias

from latermq_broker.delivery.leases.columns import Numbers
from latermq_broker.delivery.leases.group_deadlines import GroupDeadlines, equal_weight
from latermq_broker.delivery.leases.lease import (
    GENERATION_MASK,
    IN_HAND,
    STATES,
    Delivery,
    Event,
    State,
    after,
)
from latermq_broker.delivery.leases.renewals import Renewals, early_ms
from latermq_broker.delivery.leases.shared import (
    LOW_BITS,
    LOW_MASK,
    DeliveryKey,
    Holder,
    Origin,
    place_of,
    tuple_new,
)
from latermq_broker.delivery.leases.slab import Slab, fill, put

ATTEMPTS_COUNTED_MAX: Final = 65_535  # in 16 bits, of a group without a last attempt

_LENT: Final = after(State.READY, Event.RECEIVE)
_OVER: Final = (State.DONE, State.DEAD)
_READY: Final = bytes([State.READY])
_IN_HAND: Final = bytes(IN_HAND)
_LEASED_ALONE: Final = bytes(state == State.LEASED for state in range(256))  # of others 0


Told: TypeAlias = tuple[int, int, int, int, int, int, int]
"""What a receive tells of a delivery.

Id, generation, attempt, queue id, offset, position, deadline (ms).
"""


class Deliveries(Mapping[int, Delivery]):
    """The slab's deliveries by id, and what is asked of many."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab

    def __getitem__(self, id: int) -> Delivery:
        row = self._slab.index.find(id)
        if not row:
            raise KeyError(id)
        return Delivery(self._slab, row)

    def many(self, ids: Sequence[int]) -> list[Delivery]:
        """Look up the deliveries of these ids. Raises KeyError."""
        slab = self._slab
        run = slab.run_of(ids)
        if run is None:
            return [self[id] for id in ids]
        return [Delivery(slab, row) for row in run]

    def __contains__(self, id: object) -> bool:
        return isinstance(id, int) and self._slab.index.find(id) != 0

    def __len__(self) -> int:
        return len(self._slab)

    def __iter__(self) -> Iterator[int]:
        return map(self._slab.id.__getitem__, self._slab.live())

    def of_message(self, group_id: int, origin: Origin) -> Iterator[Delivery]:
        """Find the group's deliveries of that message, by the index by message."""
        slab = self._slab
        for row in slab.origins.find(group_id, origin):
            yield Delivery(slab, row)

    def in_slices(self, rows: int) -> Iterator[list[Delivery]]:
        """Yield all deliveries, so many rows' at a time; what comes meanwhile may be missed."""
        slab = self._slab
        for first, last in self._row_slices(rows):
            yield [Delivery(slab, row) for row in range(first, last) if slab.state[row]]

    def holders_in_slices(self, rows: int) -> Iterator[Counter[Holder]]:
        """Count who holds how many, those of so many rows at a time."""
        slab = self._slab
        values = slab.holders.values
        for first, last in self._row_slices(rows):
            leased = slab.state[first:last].tobytes().translate(_LEASED_ALONE)
            counts = Counter(compress(slab.holder[first:last], leased))
            yield Counter({values[number]: count for number, count in counts.items()})

    def holders_at(self, rows: int, wanted: Callable[[DeliveryKey], bool]) -> Iterator[set[Holder]]:
        """Name who holds something at the places wanted, those of so many rows at a time."""
        slab = self._slab
        holders, places = slab.holders.values, slab.places.values
        for first, last in self._row_slices(rows):
            leased = slab.state[first:last].tobytes().translate(_LEASED_ALONE)
            pairs = {
                *compress(zip(slab.holder[first:last], slab.place[first:last], strict=True), leased)
            }
            yield {holders[holder] for holder, place in pairs if wanted(places[place])}

    def of_holders(self, rows: int, mine: Callable[[Holder], bool]) -> Iterator[list[Delivery]]:
        """Find what some holders have in hand, those of so many rows at a time."""
        slab = self._slab
        for first, last in self._row_slices(rows):
            holders = slab.holder[first:last].tolist()
            numbers = {number for number in {*holders} if mine(slab.holders.values[number])}
            yield [
                Delivery(slab, row)
                for row, number in enumerate(holders, first)
                if number in numbers and slab.state[row] == State.LEASED
            ]

    def waits_of(
        self, owner: tuple[int, int]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """List what is READY of an owner (`DeliveryKey.is_of`) as (deadline, id), and what is armed
        as (due, id), both in order. Looks at every row: 0.1 us each."""
        slab = self._slab
        places = enumerate(slab.places.values)
        numbers = {number for number, place in places if place.is_of(owner)}
        rows = [
            row
            for row, number in enumerate(slab.place[1 : slab.rows + 1].tolist(), 1)
            if number in numbers and slab.state[row]
        ]
        ready = [row for row in rows if slab.state[row] == State.READY]
        armed = [row for row in rows if slab.armed[row]]
        return (
            sorted((slab.deadline_ms[row], slab.id[row]) for row in ready),
            sorted((slab.deadline_ms[row] + 1 - slab.armed[row], slab.id[row]) for row in armed),
        )

    def _row_slices(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield first and end of so many rows at a time; rows may come and go in between."""
        assert rows > 0
        for first in range(1, self._slab.rows + 1, rows):
            yield first, min(first + rows, self._slab.rows + 1)

    def held(
        self, named: Sequence[tuple[int, int]], owner: tuple[int, int], now_ms: int
    ) -> list[int]:
        """Name those that are in hand, in that generation and of that owner
        (`DeliveryKey.is_of`), and whose deadline is to come: the id of each, 0 for any other.

        Args:
            named: ids and generations.
        """
        slab = self._slab
        ids = [id for id, _ in named]
        places = slab.places.values
        run = slab.run_of(ids)
        if run is not None:
            first, stop = run.start, run.stop
            if (
                all(places[number].is_of(owner) for number in {*slab.place[first:stop]})
                and slab.generation[first:stop].tolist() == [generation for _, generation in named]
                and not slab.state[first:stop].tobytes().strip(_IN_HAND)
                and min(slab.deadline_ms[first:stop]) > now_ms
            ):
                return ids
        live: list[int] = []
        number, ours = -1, False  # of the place of the one before: most often of the next one too
        for id, generation in named:
            row = slab.index.find(id)
            if row and slab.place[row] != number:
                number = slab.place[row]
                ours = places[number].is_of(owner)
            is_held = (
                row
                and ours
                and slab.generation[row] == generation
                and slab.state[row] in _IN_HAND
                and slab.deadline_ms[row] > now_ms
            )
            live.append(id if is_held else 0)
        return live

    def tell(self, delivery: Delivery) -> Told:
        """Read what a receive tells of it."""
        slab, row = self._slab, delivery.row
        place = slab.places.values[slab.place[row]]
        offset = place.offset_high << LOW_BITS | slab.offset[row]
        return (
            slab.id[row], slab.generation[row], slab.attempt[row], place.queue_id, offset,
            slab.position[row], slab.deadline_ms[row],
        )  # fmt: skip


class Ended(NamedTuple):
    """Deliveries that ended together, alike but for id, offset and message."""

    ids: Sequence[int]
    before: State
    place: DeliveryKey
    offset: int  # of the first
    positions: list[int]
    generation: int
    deadline_ms: int
    first_attempt: int
    leased_ms: int


class Leases:
    """All deliveries, their deadlines, and who renews."""

    def __init__(self) -> None:
        self.slab = slab = Slab()
        self.deliveries = Deliveries(slab)
        self.deadlines = GroupDeadlines(slab)
        self.next_id = 1
        self.stride = 1  # between two generations of a delivery: odd, random in each life
        self._renewals = Renewals(slab)

    def add(
        self,
        *,
        id: int,
        group_id: int,
        topic_id: int,
        queue_id: int,
        offset: int,
        position: int,
        length: int,
        tag_hash: int,
        order_key: int = 0,
        origin_topic_id: int = 0,
        origin_queue_id: int = 0,
        redrive: int = 0,
    ) -> Delivery:
        """Add a new delivery, READY, in no lane; see `DeliveryKey` for the three last."""
        place = place_of(
            group_id, topic_id, queue_id, offset, tag_hash, order_key, origin_topic_id,
            origin_queue_id, redrive,
        )  # fmt: skip
        (row,) = self._new(id, (place,), (offset,), (position,), (length,), State.READY)
        slab = self.slab
        slab.holder[row] = slab.attempt[row] = slab.generation[row] = 0
        slab.deadline_ms[row] = slab.leased_ms[row] = 0
        return Delivery(slab, row)

    def lend_new(
        self,
        first_id: int,
        places: Sequence[DeliveryKey],
        offsets: Sequence[int],
        positions: Sequence[int],
        lengths: Sequence[int],
        holder: Holder,
        now_ms: int,
        lasting_ms: int,
    ) -> None:
        """Add new deliveries, with ids in sequence, and lend them: through RECEIVE at once."""
        assert lasting_ms >= 0
        slab = self.slab
        rows = self._new(first_id, places, offsets, positions, lengths, _LENT)
        fill(slab.attempt, rows, 1)
        fill(slab.generation, rows, self.stride)
        fill(slab.leased_ms, rows, now_ms)
        self._renewals.give_new(rows, holder)
        margin_ms = early_ms(lasting_ms) if holder.auto_renew else 0
        self.deadlines.arm(rows, now_ms + lasting_ms, margin_ms)

    def _new(
        self,
        first_id: int,
        places: Sequence[DeliveryKey],
        offsets: Sequence[int],
        positions: Sequence[int],
        lengths: Sequence[int],
        state: State,
    ) -> Sequence[int]:
        """Take rows for deliveries with ids in sequence, nobody's yet."""
        slab, count = self.slab, len(places)
        assert first_id > 0
        assert count > 0
        rows = slab.take_all(count)  # the columns may move
        put(slab.id, rows, range(first_id, first_id + count))
        put(slab.position, rows, positions)
        put(slab.length, rows, lengths)
        put(slab.offset, rows, [offset & LOW_MASK for offset in offsets])
        if places.count(places[0]) == count:
            number = slab.places.hold(places[0], count)
            fill(slab.place, rows, number)
            slab.origins.know(number)
        else:
            held = [slab.places.hold(place) for place in places]
            put(slab.place, rows, held)
            for number in {*held}:
                slab.origins.know(number)
        for column in (slab.first_attempt, slab.last_attempt, slab.renewals):
            fill(column, rows, 0)
        fill(slab.state, rows, state)
        slab.index.add(rows)
        slab.origins.add(rows)
        self.next_id = max(self.next_id, first_id + count)
        return rows

    def load(
        self,
        columns: Mapping[str, Numbers],
        places: Iterable[DeliveryKey],
        holders: Iterable[Holder],
    ) -> None:
        """Load deliveries as they were, but with no deadline armed and no lane formed."""
        self.slab.load(columns, places, holders)
        self._renewals.load()

    def step(self, delivery: Delivery, event: Event) -> State:
        """Move a delivery through the table; the caller sets the new deadline with `hold`."""
        slab, row = self.slab, delivery.row
        state = after(STATES[slab.state[row]], event)
        if state in _OVER:
            self._end(row)
            return state
        if slab.armed[row]:
            self.deadlines.disarm(row)
        elif slab.next[row]:
            slab.leave(row)  # its lane
        slab.state[row] = state
        return state

    def finish(self, ids: Sequence[int], event: Event) -> Ended | None:
        """End deliveries that are alike but for id, offset and message; one always is.

        Several are where they were lent together, are still as they were then, and are of no
        message group. Returns: None: they are not alike, and nothing is done.
        Raises KeyError where the only one is none.
        """
        slab = self.slab
        run = slab.run_of(ids)
        if run is None and len(ids) != 1:
            return None
        row = run.start if run is not None else slab.index.find(ids[0])
        if not row:
            raise KeyError(ids[0])
        if run is not None and not _alike(slab, run):
            return None
        before = STATES[slab.state[row]]
        assert after(before, event) in _OVER
        place = slab.places.values[slab.place[row]]
        fields = (
            ids,
            before,
            place,
            place.offset_high << LOW_BITS | slab.offset[row],
            [slab.position[row]] if run is None else slab.position[row : run.stop].tolist(),
            slab.generation[row],
            slab.deadline_ms[row],
            slab.first_attempt[row],
            slab.leased_ms[row],
        )
        ended = tuple_new(Ended, fields)
        if run is None:
            self._end(row)
        else:
            self._end_all(run, before)
        return ended

    def lend(self, delivery: Delivery, holder: Holder, now_ms: int) -> None:
        """Lend a delivery to `holder` from now on: one more attempt, and a new handle."""
        slab, row = self.slab, delivery.row
        assert slab.state[row], "it is over"
        slab.attempt[row] = min(slab.attempt[row] + 1, ATTEMPTS_COUNTED_MAX)
        slab.generation[row] = slab.generation[row] + self.stride & GENERATION_MASK
        slab.renewals[row] = 0
        slab.leased_ms[row] = now_ms
        self._renewals.give_to(row, holder)

    def hold(self, delivery: Delivery, deadline_ms: int, *, margin_ms: int = 0) -> None:
        """Arm the deadline; an auto-renewed lease is looked at `margin_ms` before it."""
        assert self.slab.state[delivery.row] in IN_HAND
        self.deadlines.arm((delivery.row,), deadline_ms, margin_ms)

    def drop(self, delivery: Delivery) -> None:
        """Forget it, whatever its state: its group, topic or progress is void."""
        self._end(delivery.row)

    def of(self, pairs: Collection[tuple[int, int]]) -> list[Delivery]:
        """List the deliveries of those (group id, topic id). Looks at every row, if there are any:
        0.05 us each."""
        slab = self.slab
        places = {number for number, place in enumerate(slab.places.values) if place[:2] in pairs}
        if not any(slab.places.count(number) for number in places):
            return []
        return [Delivery(slab, row) for row in slab.live() if slab.place[row] in places]

    def count(self, state: State) -> int:
        """Count the deliveries in that state."""
        return self.slab.state.tobytes().count(state)

    def ready(self) -> list[tuple[int, int]]:
        """List the READY ones as (deadline, id), in order."""
        slices = self.ready_slices(1, max(self.slab.rows, 1))
        return next((ready for _, ready in slices), [])

    def ready_slices(self, row: int, rows: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield (its first row, its READY ones as (deadline, id) in order) of each slice of so many
        rows that has any, from `row`'s on. A slice is taken apart when it is asked for."""
        assert rows > 0
        slab = self.slab
        deadline_ms, id = slab.deadline_ms, slab.id
        states = slab.state.tobytes()  # to search a million rows takes less than copying them
        row = states.find(_READY, max(row - (row - 1) % rows, 1))
        while row >= 0:
            row -= (row - 1) % rows
            part = enumerate(states[row : row + rows], row)
            yield row, sorted((deadline_ms[at], id[at]) for at, code in part if code == State.READY)
            row = states.find(_READY, row + rows)

    def expire(
        self, now_ms: int, count_max: int, weight: Callable[[int], int] = equal_weight
    ) -> list[Delivery]:
        """Disarm up to `count_max` deliveries whose deadline has come: groups take turns, by
        weight, and of each its earliest come first."""
        rows = self.deadlines.expire(now_ms, count_max, weight)
        return [Delivery(self.slab, row) for row in rows]

    def wait_again(self, delivery: Delivery) -> None:
        """Arm again what expired and was not dealt with, unless its deadline has moved on since."""
        slab, row = self.slab, delivery.row
        if slab.state[row] in IN_HAND and not slab.armed[row]:
            self.deadlines.arm((row,), slab.deadline_ms[row])

    def renewed_by(self, client_id: str) -> list[int]:
        """List the ids of the leases that the broker renews for that client."""
        slab = self.slab
        rows = self._renewals.rows(client_id)
        return sorted(slab.id[row] for row in rows if slab.state[row] == State.LEASED)

    def renewed_clients(self) -> KeysView[str]:
        """Return the clients whose leases are, or were while they lasted, renewed."""
        return self._renewals.clients()

    def _end(self, row: int) -> None:
        slab = self.slab
        assert slab.state[row], "it is over"
        if slab.armed[row]:
            self.deadlines.disarm(row)
        elif slab.next[row]:
            slab.leave(row)  # its lane
        slab.index.remove_one(row)
        slab.origins.remove_one(row)
        slab.places.release(slab.place[row])
        holder = slab.holder[row]
        if holder and slab.holders.release(holder):
            self._renewals.forget(holder)
        slab.give(row)

    def _end_all(self, rows: range, before: State) -> None:
        """End rows in sequence, which differ in id, offset and message only, and free them."""
        slab, first = self.slab, rows.start
        assert slab.state[first] == before
        self.deadlines.disarm_all(rows)
        for row in rows if before is State.READY else ():
            slab.leave(row)  # its lane
        slab.index.remove(rows)
        slab.origins.remove(rows)
        slab.places.release(slab.place[first], len(rows))
        holder = slab.holder[first]
        if holder and slab.holders.release(holder, len(rows)):
            self._renewals.forget(holder)
        slab.give_all(rows)


def _alike(slab: Slab, rows: range) -> bool:
    """Tell whether rows are alike but for id, offset and message, and of no message group."""
    return (
        _same(slab.state, rows)
        and _same(slab.place, rows)
        and _same(slab.holder, rows)
        and _same(slab.generation, rows)
        and _same(slab.deadline_ms, rows)
        and not slab.places.values[slab.place[rows.start]].order_key
        and not any(slab.first_attempt[rows.start : rows.stop])
    )


def _same(column: Numbers, rows: range) -> bool:
    """Tell whether the rows have the same number in the column."""
    there = column[rows.start : rows.stop].tobytes()
    return there == there[: column.itemsize] * len(rows)
