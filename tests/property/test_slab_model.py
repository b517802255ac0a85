"""The slab of deliveries against a dict of plain objects: each number kept, each row used again."""

from dataclasses import astuple, dataclass
from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.delivery.leases.lease import TRANSITIONS, Delivery, Event, State
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.renewals import early_ms
from latermq_broker.delivery.leases.shared import NOBODY, DeliveryKey, Holder, Origin
from latermq_broker.delivery.leases.slab import FEW_ROWS_MAX, RENEWALS_MAX
from latermq_broker.delivery.order.lane import Lane

GROUP_IDS = (1, 2)
NOWHERE = Origin(0, 0, 0)
FAR_OFFSET = (5 << 32) + 7
HOLDERS = [
    Holder(64, "a", False),
    Holder(64, "a", True),
    Holder(128, "a", True),  # the same client, known under a later record
    Holder(192, "b", True),
]


@dataclass
class Known:
    """What the model knows of one delivery, in the order of `numbers`."""

    id: int
    group_id: int
    topic_id: int
    queue_id: int
    offset: int
    position: int
    length: int
    tag_hash: int
    state: State = State.READY
    attempt: int = 0
    generation: int = 0
    renewals: int = 0
    deadline_ms: int = 0
    leased_ms: int = 0
    last_attempt: int = 0
    first_attempt: int = 0
    holder: Holder = NOBODY
    redrive: int = 0
    origin: Origin = NOWHERE
    armed_ms: int | None = None


def numbers(one: Delivery) -> tuple[object, ...]:
    names = list(Known.__dataclass_fields__)[:-1]
    return tuple(getattr(one, name) for name in names)


class SlabMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.lanes = {group_id: Lane(self.leases) for group_id in GROUP_IDS}
        self.known: dict[int, Known] = {}
        self.in_line: dict[int, list[int]] = {group_id: [] for group_id in GROUP_IDS}
        self.next_id = 1
        self.most = 0
        self.now_ms = 1_000_000

    # --- what happens to deliveries ------------------------------------------------------------

    @rule(
        count=st.integers(1, 40),
        group_id=st.sampled_from(GROUP_IDS),
        offset=st.sampled_from([0, 7, FAR_OFFSET]),
        tag_hash=st.sampled_from([0, 1, (1 << 64) - 1]),
        redrive=st.integers(0, 2),
    )
    def add(self, count: int, group_id: int, offset: int, tag_hash: int, redrive: int) -> None:
        for more in range(count):
            position = 8 * self.next_id
            one = Known(
                self.next_id, group_id, 3, more % 3, offset + more, position, 100 + more, tag_hash,
                redrive=redrive,
            )  # fmt: skip
            one.origin = Origin(2 if redrive else 3, more % 3 + redrive, one.offset)
            self.known[one.id] = one
            found = self.leases.add(
                id=one.id,
                group_id=group_id,
                topic_id=3,
                queue_id=one.queue_id,
                offset=one.offset,
                position=position,
                length=one.length,
                tag_hash=tag_hash,
                origin_topic_id=2 if redrive else 0,
                origin_queue_id=one.origin.queue_id if redrive else 0,
                redrive=redrive,
            )
            self.join(found)
            self.next_id += 1 + more % 2  # some numbers are left out

    @rule(
        count=st.integers(1, 40),
        tags=st.sampled_from([[5], [5, 6]]),
        gap=st.sampled_from([1, 1, 2]),
        holder=st.sampled_from(HOLDERS),
        wait_ms=st.integers(0, 60_000),
    )
    def lend_new(self, count: int, tags: list[int], gap: int, holder: Holder, wait_ms: int) -> None:
        first = self.next_id
        made = [
            Known(
                id, 1, 3, 0, FAR_OFFSET + gap * id, 8 * id, 100 + id % 7, tags[id % len(tags)],
                State.LEASED, 1, 1, origin=Origin(3, 0, FAR_OFFSET + gap * id),
            )
            for id in range(first, first + count)
        ]  # fmt: skip
        self.leases.lend_new(
            first,
            [DeliveryKey(1, 3, 0, FAR_OFFSET >> 32, one.tag_hash) for one in made],
            [one.offset for one in made],
            [one.position for one in made],
            [one.length for one in made],
            holder,
            self.now_ms,
            wait_ms,
        )
        ids = [one.id for one in made]
        assert [delivery.id for delivery in self.leases.deliveries.many(ids)] == ids
        margin_ms = early_ms(wait_ms) if holder.auto_renew else 0
        for one in made:
            one.holder, one.leased_ms = holder, self.now_ms
            one.deadline_ms = self.now_ms + wait_ms
            one.armed_ms = one.deadline_ms - margin_ms
            self.known[one.id] = one
        self.next_id += count

    @precondition(lambda self: self.known)
    @rule(draw=st.data(), count=st.integers(1, 40))
    def finish_many(self, draw: st.DataObject, count: int) -> None:
        """Those from one on, as far as they are alike: together; else one by one."""
        first = draw.draw(st.sampled_from(sorted(self.known)))
        slab = self.leases.slab
        ids = range(first, first + count)
        rows = [slab.index.find(id) for id in ids]
        run = slab.run_of(ids)
        if run is None:
            assert count == 1 or 0 in rows or rows != [*range(rows[0], rows[0] + count)]
            assert count == 1 or self.leases.finish(ids, Event.ACK) is None
            return
        assert [*run] == rows
        there = [self.known[id] for id in ids]
        ended = self.leases.finish(ids, Event.ACK)
        alike = {
            (one.state, one.holder, one.generation, one.deadline_ms, one.queue_id, one.tag_hash,
             one.group_id, one.offset >> 32, one.redrive, one.origin.queue_id)
            for one in there
        }  # fmt: skip
        assert (ended is not None) == (
            len(alike) == 1 and not any(one.first_attempt for one in there)
        )
        if ended is not None:
            assert ended.before is there[0].state
            assert ended.positions == [one.position for one in there]
            assert ended.offset == there[0].offset
            for one in there:
                self.leave(one)
                del self.known[one.id]

    @precondition(lambda self: self.known)
    @rule(
        draw=st.data(),
        event=st.sampled_from(Event),
        holder=st.sampled_from(HOLDERS),
        wait_ms=st.one_of(st.integers(0, 300), st.integers(0, 60_000)),
        margin_ms=st.sampled_from([0, 0, 10_000]),
        finish=st.booleans(),
    )
    def step(
        self,
        draw: st.DataObject,
        event: Event,
        holder: Holder,
        wait_ms: int,
        margin_ms: int,
        finish: bool,
    ) -> None:
        one = self.known[draw.draw(st.sampled_from(sorted(self.known)))]
        state = TRANSITIONS.get((one.state, event))
        if state is None:
            return
        found = self.leases.deliveries[one.id]
        before = one.state
        self.leave(one)
        if state in (State.DONE, State.DEAD) and finish:
            ended = self.leases.finish((one.id,), event)
            assert ended is not None
            assert ended.before is before
            assert ended.place.is_of((one.group_id, one.topic_id))
            told = (ended.offset, *ended.positions, ended.generation, ended.first_attempt)
            assert told == (one.offset, one.position, one.generation, one.first_attempt)
            assert ended.deadline_ms == one.deadline_ms
        else:
            assert self.leases.step(found, event) is state
        one.state = state
        if state in (State.DONE, State.DEAD):
            del self.known[one.id]
            assert numbers(found)[:8] == astuple(one)[:8], "can be read until the row is taken"
            return
        if event is Event.RECEIVE:
            self.leases.lend(found, holder, self.now_ms)
            one.holder, one.leased_ms, one.renewals = holder, self.now_ms, 0
            one.attempt += 1
            one.generation += 1
        if state is State.READY:
            self.join(found)
        elif state is not State.ACKED:  # which waits for no deadline
            self.leases.hold(found, self.now_ms + wait_ms, margin_ms=margin_ms)
            one.deadline_ms = self.now_ms + wait_ms
            one.armed_ms = one.deadline_ms - margin_ms

    @precondition(lambda self: self.known)
    @rule(draw=st.data(), position=st.integers(1, 1 << 50), renewals=st.integers(0, 300))
    def note(self, draw: st.DataObject, position: int, renewals: int) -> None:
        one = self.known[draw.draw(st.sampled_from(sorted(self.known)))]
        found = self.leases.deliveries[one.id]
        found.position = found.first_attempt = one.position = one.first_attempt = position
        found.last_attempt = one.last_attempt = position + 8
        found.renewals, one.renewals = renewals, min(renewals, RENEWALS_MAX)

    @precondition(lambda self: self.known)
    @rule(draw=st.data())
    def drop(self, draw: st.DataObject) -> None:
        one = self.known.pop(draw.draw(st.sampled_from(sorted(self.known))))
        self.leave(one)
        self.leases.drop(self.leases.deliveries[one.id])

    @rule(group_id=st.sampled_from(GROUP_IDS))
    def drop_group(self, group_id: int) -> None:
        mine = [one for one in self.known.values() if one.group_id == group_id]
        found = self.leases.of({(group_id, 3)})
        assert sorted(one.id for one in found) == sorted(one.id for one in mine)
        for delivery in found:
            self.leases.drop(delivery)
        for one in mine:
            del self.known[one.id]
        self.in_line[group_id] = []
        self.lanes[group_id].close()

    @rule(step_ms=st.one_of(st.integers(0, 300), st.integers(0, 60_000)), slice=st.integers(1, 9))
    def expire(self, step_ms: int, slice: int) -> None:
        self.now_ms += step_ms
        due = [id for ms, id in self.armed() if ms <= self.now_ms]
        found = self.leases.expire(self.now_ms, slice, lambda group_id: group_id)
        assert len(found) == min(slice, len(due))
        for group_id in GROUP_IDS:
            own = [one.id for one in found if one.group_id == group_id]
            assert own == [id for id in due if self.known[id].group_id == group_id][: len(own)]
        for delivery in found:
            one = self.known[delivery.id]
            one.armed_ms = None
            if delivery.id % 3 == 0:  # the log was full
                self.leases.wait_again(delivery)
                one.armed_ms = one.deadline_ms
            else:
                self.leases.step(delivery, Event.DUE)
                one.state = State.READY
                self.join(delivery)

    @rule(group_id=st.sampled_from(GROUP_IDS), count=st.integers(1, 5))
    def the_first_go_to_the_end(self, group_id: int, count: int) -> None:
        for delivery in list(islice(self.lanes[group_id], count)):
            self.lanes[group_id].append(delivery)
        line = self.in_line[group_id]
        self.in_line[group_id] = line[count:] + line[:count]

    @rule()
    def load_into_another(self) -> None:
        """What a checkpoint does; deadlines and lanes are formed anew."""
        before, self.leases = self.leases, Leases()
        slab = before.slab
        self.leases.load(slab.columns(), slab.places.values[1:], slab.holders.values[1:])
        self.leases.next_id = before.next_id
        for id, one in self.known.items():
            if one.armed_ms is not None:
                margin_ms = one.deadline_ms - one.armed_ms
                found = self.leases.deliveries[id]
                self.leases.hold(found, one.deadline_ms, margin_ms=margin_ms)
        self.lanes = {group_id: Lane(self.leases) for group_id in GROUP_IDS}
        for group_id, line in self.in_line.items():
            for id in line:
                self.lanes[group_id].append(self.leases.deliveries[id])

    def join(self, delivery: Delivery) -> None:
        self.lanes[delivery.group_id].append(delivery)
        self.in_line[delivery.group_id].append(delivery.id)

    def leave(self, one: Known) -> None:
        one.armed_ms = None
        if one.id in self.in_line[one.group_id]:
            self.in_line[one.group_id].remove(one.id)

    def armed(self) -> list[tuple[int, int]]:
        known = self.known.values()
        return sorted((one.armed_ms, one.id) for one in known if one.armed_ms is not None)

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def every_number_is_kept(self) -> None:
        deliveries = self.leases.deliveries
        assert len(deliveries) == len(self.known)
        assert set(deliveries) == set(self.known)
        for id, one in self.known.items():
            assert numbers(deliveries[id]) == astuple(one)[:-1]
        assert self.next_id not in deliveries
        assert deliveries.get(self.next_id) is None
        assert self.leases.next_id <= self.next_id

    @invariant()
    def messages_are_found(self) -> None:
        expected: dict[tuple[int, Origin], list[int]] = {(1, Origin(9, 0, 7)): []}
        for one in self.known.values():
            expected.setdefault((one.group_id, one.origin), []).append(one.id)
            expected.setdefault((3 - one.group_id, one.origin), [])
        for (group_id, origin), ids in expected.items():
            found = [one.id for one in self.leases.deliveries.of_message(group_id, origin)]
            assert sorted(found) == sorted(ids)

    @invariant()
    def each_waits_in_its_place(self) -> None:
        assert list(self.leases.deadlines.in_order()) == self.armed()
        assert len(self.leases.deadlines) == len(self.armed())
        for group_id, line in self.in_line.items():
            assert [one.id for one in self.lanes[group_id]] == line

    @invariant()
    def clients_are_found(self) -> None:
        for client_id in ("a", "b", "c"):
            expected = sorted(
                one.id
                for one in self.known.values()
                if one.state is State.LEASED
                and one.holder.auto_renew
                and one.holder.client_id == client_id
            )
            assert self.leases.renewed_by(client_id) == expected

    @invariant()
    def rows_and_shared_values_are_used_again(self) -> None:
        slab = self.leases.slab
        rings = len(GROUP_IDS) + len(self.leases.deadlines)
        self.most = max(self.most, len(self.known) + 60 * 60)
        assert slab.rows <= self.most + rings + FEW_ROWS_MAX
        assert len(slab.places) == len({slab.place[row] for row in slab.live()})
        named = {slab.holder[row] for row in slab.live()} - {0}
        assert len(slab.holders) == len(named)


TestSlab = SlabMachine.TestCase
TestSlab.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
