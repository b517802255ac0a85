"""Each (state, event) pair does what the picture in the module says, or is refused."""

import ast
import random
from collections import deque
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.delivery.leases.lease import (
    TRANSITIONS,
    Delivery,
    Event,
    IllegalTransitionError,
    State,
    after,
)
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.recently_done import RecentlyDone
from latermq_broker.delivery.leases.shared import DeliveryKey, Holder

SOURCES: Final = Path(__file__).resolve().parents[3] / "broker/latermq_broker"

TABLE = """
    READY   RECEIVE LEASED
    READY   ACK     DONE
    READY   EXHAUST DEAD
    LEASED  ACK     DONE
    LEASED  EXTEND  LEASED
    LEASED  NACK    BACKOFF
    LEASED  SUSPEND BACKOFF
    LEASED  DUE     READY
    LEASED  FORWARD DEAD
    LEASED  EXHAUST DEAD
    BACKOFF ACK     DONE
    BACKOFF EXTEND  BACKOFF
    BACKOFF NACK    BACKOFF
    BACKOFF SUSPEND BACKOFF
    BACKOFF DUE     READY
    BACKOFF FORWARD DEAD
    LEASED  FOLLOW  ACKED
    BACKOFF FOLLOW  ACKED
    ACKED   RECEIVE LEASED
    ACKED   ACK     DONE
"""
EXPECTED = {
    (State[state], Event[event]): State[result]
    for state, event, result in (line.split() for line in TABLE.strip().splitlines())
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_every_pair(state: State, event: Event) -> None:
    if (state, event) in EXPECTED:
        assert after(state, event) is EXPECTED[state, event]
    else:
        with pytest.raises(IllegalTransitionError):
            after(state, event)


def test_the_picture_in_the_docstring_is_the_table() -> None:
    text = (SOURCES / "delivery/leases/lease.py").read_text(encoding="utf-8")  # or compiled
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    start = next(index for index, line in enumerate(lines) if line.split()[:1] == ["state"])
    events = lines[start].split()[1:]
    drawn = {}
    for line in lines[start + 1 : start + 5]:
        state, *results = line.split()
        for event, result in zip(events, results, strict=True):
            if result != "-":
                drawn[State[state], Event[event]] = State[result]
    assert drawn == TRANSITIONS


def add(leases: Leases, id: int) -> Delivery:
    return leases.add(
        id=id, group_id=1, topic_id=1, queue_id=0, offset=0, position=64, length=100, tag_hash=0
    )


def test_a_done_delivery_has_no_row_and_no_deadline() -> None:
    leases = Leases()
    held = add(leases, 7)
    assert leases.next_id == 8
    leases.step(held, Event.RECEIVE)
    leases.hold(held, 5_000)
    leases.step(held, Event.ACK)
    assert leases.deliveries == {}
    assert leases.deadlines.next_deadline_ms() is None


def test_an_auto_renewed_lease_is_found_by_its_client_until_it_ends() -> None:
    leases = Leases()
    held = add(leases, 1)
    leases.step(held, Event.RECEIVE)
    leases.lend(held, Holder(64, "client", True), 0)
    leases.hold(held, 60_000, margin_ms=10_000)
    assert leases.renewed_by("client") == [1]
    assert leases.expire(49_999, 1) == []
    assert leases.deadlines.next_deadline_ms() == 50_000
    leases.step(held, Event.NACK)
    leases.hold(held, 1_000)
    assert leases.renewed_by("client") == []


def test_what_expired_in_vain_waits_again_unless_it_moved_on() -> None:
    leases = Leases()
    for id in (1, 2):
        held = add(leases, id)
        leases.step(held, Event.RECEIVE)
        leases.hold(held, 1_000)
    first, second = leases.expire(1_000, 10)
    leases.step(first, Event.EXHAUST)
    for one in (first, second):
        leases.wait_again(one)
    assert [one.id for one in leases.expire(1_000, 10)] == [2]


class TestRecentlyDone:
    def test_remembers_the_last_handle_while_the_lease_would_have_lasted(self) -> None:
        done = RecentlyDone(10)
        done.remember((3,), 2, DeliveryKey(1, 7, 0), 1_000)
        done.forget(0)
        assert done.holds(3, 2, (1, 7), 999)
        assert done.holds(3, 2, (1, 0), 999)  # no topic is named
        assert not done.holds(3, 2, (1, 7), 1_000)
        assert not done.holds(3, 1, (1, 7), 500)
        assert not done.holds(4, 2, (1, 7), 500)
        assert not done.holds(3, 2, (2, 7), 500)
        assert not done.holds(3, 2, (1, 8), 500)

    def test_is_bounded_and_forgets_the_oldest(self) -> None:
        done = RecentlyDone(2)
        for id in (1, 2, 3):
            done.remember((id,), 0, DeliveryKey(1, 7, 0), 1_000)
            done.forget(0)
        assert [done.holds(id, 0, (1, 7), 0) for id in (1, 2, 3)] == [False, True, True]

    @pytest.mark.parametrize("apart", [1, 7, 64, 1_000])
    def test_finds_what_a_dictionary_would(self, apart: int) -> None:
        chance, count_max, now_ms = random.Random(apart), 1_500, 0
        done = RecentlyDone(count_max)
        rows: deque[tuple[int, ...]] = deque()  # what is over together, oldest first
        known: dict[int, tuple[int, int, int]] = {}
        ids = [number * apart for number in range(1, 6_001)]
        for at in range(0, len(ids), 200):  # nearly in order, as acknowledgements come
            some = ids[at : at + 200]
            chance.shuffle(some)
            while some:
                together = tuple(some.pop() for _ in range(min(len(some), chance.choice((1, 32)))))
                generation, group, deadline_ms = chance.randrange(3), chance.randrange(2), now_ms
                deadline_ms += chance.choice((300, 600))
                done.remember(together, generation, DeliveryKey(group, 7, 0), deadline_ms)
                rows.append(together)
                known |= dict.fromkeys(together, (generation, group, deadline_ms))
                now_ms += chance.choice((0, 1, 9))
                done.forget(now_ms)
                while rows and (len(known) > count_max or known[rows[0][0]][2] <= now_ms):
                    for id in rows.popleft():
                        del known[id]
        assert known
        again = RecentlyDone(count_max)
        again.restore(done.snapshot())
        for id in (*ids, 0, ids[-1] + apart):
            generation, group, deadline_ms = known.get(id, (0, 0, 0))
            for one in (done, again):
                assert one.holds(id, generation, (group, 7), now_ms) == (deadline_ms > now_ms)
                assert not one.holds(id, generation + 1, (group, 7), now_ms)
                assert not one.holds(id, generation, (group + 2, 7), now_ms)
                assert not one.holds(id, generation, (group, 7), deadline_ms)
        done.forget(now_ms + 600)
        assert not any(done.holds(id, *known[id][:1], (known[id][1], 7), 0) for id in known)
