"""All deliveries there are: what goes through the table of `lease.py`, alone or many at once."""

from array import array
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Final

from latermq_broker.delivery.leases.columns import Numbers
from latermq_broker.delivery.leases.lease import IN_HAND, STATES, Delivery, Event, State, after
from latermq_broker.delivery.leases.renewals import Renewals
from latermq_broker.delivery.leases.row_deadlines import RowDeadlines
from latermq_broker.delivery.leases.slab import LOW_BITS, LOW_MASK, Holder, Place, Slab, fill, put


class Deliveries(Mapping[int, Delivery]):
    """The slab's deliveries by id."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab

    def __getitem__(self, id: int) -> Delivery:
        return Delivery(self._slab, self.row(id))

    def row(self, id: int) -> int:
        """Raises KeyError."""
        row = self._slab.index.find(id)
        if not row:
            raise KeyError(id)
        return row

    def __contains__(self, id: object) -> bool:
        return isinstance(id, int) and self._slab.index.find(id) != 0

    def __len__(self) -> int:
        return len(self._slab)

    def __iter__(self) -> Iterator[int]:
        return map(self._slab.id.__getitem__, self._slab.live())


def _all(column: Numbers, rows: range) -> bool:
    """Whether the rows have the same there."""
    there = column[rows.start : rows.stop].tobytes()
    return there == there[: column.itemsize] * len(rows)


_LENT: Final = after(State.READY, Event.RECEIVE)
_OVER: Final = (State.DONE, State.DEAD)
_READY: Final = bytes([State.READY])


class Leases:
    """All deliveries, their deadlines, and who renews."""

    def __init__(self) -> None:
        self.slab = slab = Slab()
        self.deliveries = Deliveries(slab)
        self.deadlines = RowDeadlines(slab)
        self.next_id = 1
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
    ) -> Delivery:
        """A new one, READY, in no lane."""
        slab = self.slab
        row = slab.take()
        slab.id[row] = id
        slab.position[row] = position
        slab.length[row] = length
        slab.offset[row] = offset & LOW_MASK
        place = Place(group_id, topic_id, queue_id, offset >> LOW_BITS, tag_hash, order_key)
        slab.place[row] = slab.places.hold(place)
        slab.state[row] = State.READY
        slab.holder[row] = slab.attempt[row] = slab.generation[row] = slab.renewals[row] = 0
        slab.deadline_ms[row] = slab.leased_ms[row] = 0
        slab.last_attempt[row] = slab.first_attempt[row] = 0
        slab.index.add(row)
        if id >= self.next_id:
            self.next_id = id + 1
        return Delivery(slab, row)

    def lend_new(
        self,
        first_id: int,
        places: Sequence[Place],
        offsets: Sequence[int],
        positions: Sequence[int],
        lengths: Sequence[int],
        holder: Holder,
        now_ms: int,
    ) -> Sequence[int]:
        """New ones, with ids in sequence, through RECEIVE at once; their deadline is not armed yet.
        Returns their rows."""
        slab, count = self.slab, len(places)
        rows = slab.take_all(count)  # the columns may move
        put(slab.id, rows, range(first_id, first_id + count))
        put(slab.position, rows, positions)
        put(slab.length, rows, lengths)
        put(slab.offset, rows, [offset & LOW_MASK for offset in offsets])
        if places.count(places[0]) == count:
            fill(slab.place, rows, slab.places.hold(places[0], count))
        else:
            put(slab.place, rows, [slab.places.hold(place) for place in places])
        fill(slab.leased_ms, rows, now_ms)
        for column in (slab.first_attempt, slab.last_attempt, slab.renewals):
            fill(column, rows, 0)
        fill(slab.attempt, rows, 1)
        fill(slab.generation, rows, 1)
        fill(slab.state, rows, _LENT)
        slab.index.add_all(rows)
        self._renewals.give_new(rows, holder)
        self.next_id = max(self.next_id, first_id + count)
        return rows

    def load(
        self,
        columns: Mapping[str, Numbers],
        places: Iterable[Place],
        holders: Iterable[Holder],
    ) -> None:
        """Deliveries as they were, but that no deadline is armed and no lane has been formed."""
        self.slab.load(columns, places, holders)
        self._renewals.load()

    def step(self, delivery: Delivery, event: Event) -> State:
        """Move through the table; the caller sets the new deadline with `hold`."""
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

    def finish(self, row: int, event: Event) -> State:
        """The same for an event that ends it, by its row; returns in which state it was."""
        before = STATES[self.slab.state[row]]
        assert after(before, event) in _OVER
        self._end(row)
        return before

    def finish_all(self, rows: range, event: Event) -> State | None:
        """The same for those whose ids are in sequence, if they are alike but for id, offset and
        message, and of no message group; None: they are not, and nothing is done."""
        slab, first, stop = self.slab, rows.start, rows.stop
        number, before = slab.place[first], STATES[slab.state[first]]
        alike = (
            _all(slab.state, rows)
            and _all(slab.place, rows)
            and _all(slab.holder, rows)
            and _all(slab.generation, rows)
            and _all(slab.deadline_ms, rows)
            and not slab.places.values[number].order_key
            and not any(slab.first_attempt[first:stop])
        )
        if not alike:
            return None
        assert after(before, event) in _OVER
        self.deadlines.disarm_all(rows)
        for row in rows if before is State.READY else ():
            slab.leave(row)  # its lane
        slab.index.remove_all(rows)
        slab.places.release(number, len(rows))
        holder = slab.holder[first]
        if holder and slab.holders.release(holder, len(rows)):
            self._renewals.forget(holder)
        slab.give_all(rows)
        return before

    def lend(self, delivery: Delivery, holder: Holder, now_ms: int) -> None:
        """It is `holder`'s from now on: one more attempt, and a new handle."""
        slab, row = self.slab, delivery.row
        slab.attempt[row] += 1
        slab.generation[row] += 1
        slab.renewals[row] = 0
        slab.leased_ms[row] = now_ms
        self._renewals.give_to(row, holder)

    def hold(self, delivery: Delivery, deadline_ms: int, *, margin_ms: int = 0) -> None:
        """Arm the deadline; an auto-renewed lease is looked at `margin_ms` before it."""
        self.deadlines.arm(delivery.row, deadline_ms, margin_ms)

    def drop(self, delivery: Delivery) -> None:
        """Forget it, whatever its state: its group, topic or progress is void."""
        self._end(delivery.row)

    def of(self, group_id: int, topic_id: int) -> list[Delivery]:
        """The group's on that topic. Looks at every row."""
        slab = self.slab
        places = {
            number
            for number, place in enumerate(slab.places.values)
            if place[:2] == (group_id, topic_id)
        }
        return [Delivery(slab, row) for row in slab.live() if slab.place[row] in places]

    def find_all(
        self, group_id: int, topic_id: int, queue_id: int, offset: int
    ) -> Iterator[Delivery]:
        """The group's deliveries of that message, and of one that was there before the topic was
        made anew. Looks at every row whose offset is like it, found as bytes are."""
        slab = self.slab
        where = (group_id, topic_id, queue_id, offset >> LOW_BITS)
        column = slab.offset
        size = column.itemsize
        numbers = column[1 : slab.rows + 1].tobytes()
        low = array(column.format, (offset & LOW_MASK,)).tobytes()
        at = numbers.find(low)
        while at >= 0:
            row, beside = divmod(at, size)
            row += 1
            if not beside and slab.state[row] and slab.places.values[slab.place[row]][:4] == where:
                yield Delivery(slab, row)
            at = numbers.find(low, row * size)

    def in_slices(self, rows: int) -> Iterator[list[Delivery]]:
        """All deliveries, those of so many rows at a time; what comes in between may be missed."""
        slab = self.slab
        for first in range(1, slab.rows + 1, rows):
            last = min(first + rows, slab.rows + 1)
            yield [Delivery(slab, row) for row in range(first, last) if slab.state[row]]

    def ready_count(self) -> int:
        """How many rows are READY."""
        return self.slab.state.tobytes().count(_READY)

    def ready_slices(self, row: int, rows: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """(its first row, its READY ones as (deadline, id) in order): of each slice of so many rows
        that has any, from that which `row` is in. A slice is taken apart when it is asked for."""
        slab = self.slab
        deadline_ms, id = slab.deadline_ms, slab.id
        states = slab.state.tobytes()  # to search a million rows takes less than copying them
        row = states.find(_READY, max(row - (row - 1) % rows, 1))
        while row >= 0:
            row -= (row - 1) % rows
            part = enumerate(states[row : row + rows], row)
            yield row, sorted((deadline_ms[at], id[at]) for at, one in part if one == State.READY)
            row = states.find(_READY, row + rows)

    def expire(self, now_ms: int, count_max: int) -> list[Delivery]:
        """Up to `count_max` whose deadline has come, earliest first; they are disarmed."""
        return [Delivery(self.slab, row) for row in self.deadlines.expire(now_ms, count_max)]

    def wait_again(self, delivery: Delivery) -> None:
        """What expired was not dealt with: its deadline holds, unless it has moved on since."""
        slab, row = self.slab, delivery.row
        if slab.state[row] in IN_HAND and not slab.armed[row]:
            self.deadlines.arm(row, slab.deadline_ms[row])

    def renewed_by(self, client_id: str) -> list[int]:
        """Ids of the leases the broker renews for that client."""
        slab = self.slab
        rows = self._renewals.rows(client_id)
        return sorted(slab.id[row] for row in rows if slab.state[row] == State.LEASED)

    def renewed_clients(self) -> KeysView[str]:
        """Those whose leases are, or were while they lasted, renewed."""
        return self._renewals.clients()

    def _end(self, row: int) -> None:
        slab = self.slab
        if slab.armed[row]:
            self.deadlines.disarm(row)
        elif slab.next[row]:
            slab.leave(row)  # its lane
        slab.index.remove(row)
        slab.places.release(slab.place[row])
        holder = slab.holder[row]
        if holder and slab.holders.release(holder):
            self._renewals.forget(holder)
        slab.give(row)
