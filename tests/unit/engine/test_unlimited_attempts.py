"""A group whose messages have no last attempt: counted in 16 bits, and buried only by hand."""

from latermq_broker.delivery.leases.leases import ATTEMPTS_COUNTED_MAX
from latermq_text.attempts import UNLIMITED, allowed, counted_of
from support.engine_rig import EngineRig


def made(rig: EngineRig) -> None:
    rig.engine.groups.create(
        "billing", fifo=False, max_attempts=UNLIMITED, backoff=None, now_ms=rig.now_ms
    )
    rig.engine.write()


def test_attempts_are_counted_as_far_as_they_can_be() -> None:
    rig = EngineRig()
    made(rig)
    rig.send("a")
    (first,) = rig.receive(lease_ms=10)
    (delivery,) = rig.engine._state.leases.deliveries.values()
    delivery.attempt = ATTEMPTS_COUNTED_MAX - 1  # as after two days, each three seconds
    for attempt in (ATTEMPTS_COUNTED_MAX, ATTEMPTS_COUNTED_MAX, ATTEMPTS_COUNTED_MAX):
        rig.advance(10)
        (again,) = rig.receive(lease_ms=10)
        assert again.attempt == attempt
    assert first.attempt == 1
    assert rig.engine.groups.dead_letter_count(rig.engine.catalog.require_group("billing")) == 0
    rig.restart()
    assert rig.engine.catalog.require_group("billing").max_attempts == UNLIMITED


def test_a_letter_of_it_names_no_number() -> None:
    rig = EngineRig()
    made(rig)
    rig.send("a")
    (held,) = rig.receive(lease_ms=10)
    rig.engine.forward("billing", held.handle, rig.now_ms)
    rig.engine.write()
    letter = rig.engine.dead.get("billing", 0)
    assert (letter.attempt_count, letter.max_attempts) == (1, 0)


def test_words() -> None:
    assert [allowed(17), allowed(UNLIMITED)] == ["17", "unlimited"]
    assert [counted_of(3, 17), counted_of(3, UNLIMITED), counted_of(3, 17, joined="/")] == [
        "3 of 17", "3", "3/17"
    ]  # fmt: skip
