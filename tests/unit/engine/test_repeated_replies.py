"""Replies that got lost: asked for again by their attempt id, or not proved to have arrived."""

from collections.abc import Callable

import pytest

from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.state.model import Outgoing, ReceiveRequest, TopicType
from support.engine_rig import EngineRig

MINUTE_MS = 60_000


class ReplyRig(EngineRig):
    """An engine, and the handles of what was received last."""

    last: list[str]
    lite_keys: frozenset[int] = frozenset()


def ask(rig: ReplyRig, attempt_id: str, *, count: int = 1, client: str = "client-1") -> list[str]:
    """What a push consumer receives with this attempt id, as name and attempt."""
    request = ReceiveRequest(
        "billing", "orders", client, count, MINUTE_MS, auto_renew=True, attempt_id=attempt_id,
        lite_keys=rig.lite_keys,
    )  # fmt: skip
    got = rig.engine.receive(request, rig.now_ms)
    rig.engine.write()
    rig.last = [one.handle for one in got]
    return [f"{one.sys.decode()} {one.attempt}" for one in got]


def plain(rig: ReplyRig) -> None:
    rig.send("m1", "m2")


def ordered(rig: ReplyRig) -> None:
    rig.engine.groups.create("billing", fifo=True, max_attempts=5, backoff=None, now_ms=rig.now_ms)
    rig.engine.send(
        [
            Outgoing("orders", b"x", name.encode(), name, message_group="one")
            for name in ("m1", "m2")
        ],
        rig.now_ms,
    )


def ranked(rig: ReplyRig) -> None:
    rig.engine.topics.create("orders", TopicType.PRIORITY, 2, rig.now_ms)
    rig.engine.send(
        [
            Outgoing("orders", b"x", name.encode(), name, priority=priority)
            for name, priority in (("m1", 1), ("m2", 0))
        ],
        rig.now_ms,
    )


def lite(rig: ReplyRig) -> None:
    rig.engine.topics.create("orders", TopicType.LITE, 0, rig.now_ms)
    rig.engine.lites.bind("billing", "orders", rig.now_ms)
    rig.lite_keys = frozenset([lite_key("room")])
    rig.engine.send(
        [Outgoing("orders", b"x", name.encode(), name, lite_topic="room") for name in ("m1", "m2")],
        rig.now_ms,
    )


kinds = pytest.mark.parametrize("begin", [plain, ordered, ranked, lite])


@kinds
def test_an_attempt_id_that_comes_again_is_answered_with_the_same(
    begin: Callable[[ReplyRig], None],
) -> None:
    rig = ReplyRig()
    begin(rig)
    assert ask(rig, "try-1") == ["m1 1"]
    first = rig.last
    rig.engine.unproved("billing", first, rig.now_ms)
    assert ask(rig, "try-1") == ["m1 1"]
    assert rig.last == first
    live_on(rig, 5 * MINUTE_MS)
    assert rig.engine.ack("billing", first, rig.now_ms) == [None]  # renewed all the time
    assert ask(rig, "try-1") == ["m2 1"]


@kinds
@pytest.mark.parametrize("again", ["", "crash", "restart", "checkpoint"])
def test_an_unproved_lease_ends_by_itself_and_the_next_is_renewed(
    begin: Callable[[ReplyRig], None], again: str
) -> None:
    rig = ReplyRig()
    begin(rig)
    assert ask(rig, "try-1") == ["m1 1"]
    rig.engine.unproved("billing", [*rig.last, *rig.last, "none"], rig.now_ms)
    if again == "checkpoint":
        rig.checkpoint()
    if again:
        rig.restart() if again == "restart" else rig.crash()
    if begin not in (ordered, lite):
        assert ask(rig, "other") == ["m2 1"]
    live_on(rig, MINUTE_MS - 10_000)
    assert ask(rig, "other-2") == []
    live_on(rig, 20_000)
    assert ask(rig, "try-2", client="client-2") == ["m1 2"]
    for _ in range(3):
        rig.engine.client_seen("client-2", rig.now_ms)
        live_on(rig, MINUTE_MS)
    assert rig.engine.ack("billing", rig.last, rig.now_ms) == [None]


def test_an_unproved_lease_is_settled_by_its_handle_as_any_other() -> None:
    rig = ReplyRig()
    rig.send("m1", "m2", "m3")
    assert ask(rig, "try-1", count=3) == ["m1 1", "m2 1", "m3 1"]
    one, two, three = rig.last
    rig.engine.unproved("billing", [one, two, three], rig.now_ms)
    assert rig.engine.ack("billing", [one], rig.now_ms) == [None]
    rig.engine.change_invisible("billing", two, 1_000, rig.now_ms)  # a nack
    rig.engine.forward("billing", three, rig.now_ms)
    rig.advance(1_000)
    assert ask(rig, "try-2", count=3) == ["m2 2"]


def test_what_a_simple_consumer_holds_lasts_as_long_as_it_was_asked_for() -> None:
    rig = ReplyRig()
    rig.send("m1")
    (one,) = rig.receive(lease_ms=5_000)
    rig.engine.unproved("billing", [one.handle], rig.now_ms)
    rig.engine.change_invisible("billing", one.handle, 90_000, rig.now_ms)
    rig.advance(80_000)
    assert rig.receive() == []


def live_on(rig: ReplyRig, for_ms: int) -> None:
    """The client sends heartbeats, and nothing else."""
    for _ in range(for_ms // 10_000):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.engine.client_seen("client-2", rig.now_ms)
        rig.advance(10_000)
