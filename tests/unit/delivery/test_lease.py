"""Each (state, event) pair does what the picture in the module says, or is refused."""

import pytest

from latermq_broker.delivery.lease import (
    TRANSITIONS,
    Delivery,
    Event,
    IllegalTransitionError,
    Leases,
    RecentlyDone,
    State,
    after,
)

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
    from latermq_broker.delivery import lease

    lines = (lease.__doc__ or "").splitlines()
    start = next(index for index, line in enumerate(lines) if line.split()[:1] == ["state"])
    events = lines[start].split()[1:]
    drawn = {}
    for line in lines[start + 1 : start + 4]:
        state, *results = line.split()
        for event, result in zip(events, results, strict=True):
            if result != "-":
                drawn[State[state], Event[event]] = State[result]
    assert drawn == TRANSITIONS


def delivery(id: int) -> Delivery:
    return Delivery(
        id=id, group_id=1, topic_id=1, queue_id=0, offset=0, position=64, length=100, tag_hash=0
    )


def test_a_done_delivery_has_no_object_and_no_deadline() -> None:
    leases = Leases()
    held = delivery(7)
    leases.add(held)
    assert leases.next_id == 8
    leases.step(held, Event.RECEIVE)
    leases.hold(held, 5_000)
    leases.step(held, Event.ACK)
    assert leases.deliveries == {}
    assert leases.deadlines.next_deadline_ms() is None


def test_an_auto_renewed_lease_is_found_by_its_client_until_it_ends() -> None:
    leases = Leases()
    held = delivery(1)
    leases.add(held)
    held.auto_renew, held.client_id = True, "client"
    leases.step(held, Event.RECEIVE)
    leases.hold(held, 60_000, margin_ms=10_000)
    assert leases.renewed_by("client") == [1]
    assert leases.deadlines.next_deadline_ms() == 50_000
    leases.step(held, Event.NACK)
    leases.hold(held, 1_000)
    assert leases.renewed_by("client") == []


class TestRecentlyDone:
    def test_remembers_the_last_handle_while_the_lease_would_have_lasted(self) -> None:
        done = RecentlyDone(10)
        held = delivery(3)
        held.generation, held.deadline_ms = 2, 1_000
        done.remember(held, 0)
        assert done.holds(3, 2, 1, 999)
        assert not done.holds(3, 2, 1, 1_000)
        assert not done.holds(3, 1, 1, 500)
        assert not done.holds(4, 2, 1, 500)
        assert not done.holds(3, 2, 2, 500)

    def test_is_bounded_and_forgets_the_oldest(self) -> None:
        done = RecentlyDone(2)
        for id in (1, 2, 3):
            held = delivery(id)
            held.deadline_ms = 1_000
            done.remember(held, 0)
        assert [done.holds(id, 0, 1, 0) for id in (1, 2, 3)] == [False, True, True]
