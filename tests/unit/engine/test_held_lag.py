"""The lag of FIFO groups: what a receive may give now, and what stands behind a blocked one."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import Delivered, Failure, OnDead, Outgoing
from support.engine_rig import EngineRig


class HeldRig(EngineRig):
    def __init__(
        self, on_dead: OnDead = OnDead.SKIP, *, attempts: int = 4, held_max: int = 1_000
    ) -> None:
        delivery = DeliveryConfig(max_attempts=attempts, held_messages_max=held_max)
        super().__init__(delivery=delivery)
        self.engine.groups.create(
            "billing", fifo=True, max_attempts=0, backoff=None, on_dead=on_dead,
            now_ms=self.now_ms,
        )  # fmt: skip

    def put(self, *names: str) -> None:
        """Send messages: `a1` is of message group `a`."""
        sent = [Outgoing("orders", b"x", n.encode(), n, message_group=n[0]) for n in names]
        self.engine.send(sent, self.now_ms)
        self.engine.write()

    def nack(self, one: Delivered, wait_ms: int = 1_000) -> None:
        failure = Failure("ValueError", "bad", "", "")
        self.engine.change_invisible("billing", one.handle, wait_ms, self.now_ms, failure=failure)
        self.engine.write()


def lag(rig: EngineRig) -> tuple[int, int]:
    """Return how many messages are ready and held: the two gauges."""
    [pair] = rig.engine.watched.pairs(10)
    return pair.lag.ready_count, pair.lag.held_count


@pytest.mark.parametrize("restart", [False, True])
def test_what_stands_behind_a_blocked_message_group_is_not_ready(*, restart: bool) -> None:
    rig = HeldRig(OnDead.PARK, attempts=2)
    rig.put("a1", "a2", "b1")
    (first,) = rig.receive(count=1)
    assert lag(rig) == (2, 0), "no receive has looked at them"
    assert [one.sys for one in rig.receive(count=1, lease_ms=600_000)] == [b"b1"]
    assert lag(rig) == (0, 1), "a1 is in flight"
    rig.nack(first, 5_000)
    rig.put("a3")
    assert rig.names() == []
    if restart:
        rig.restart()
    assert lag(rig) == (0, 2), "a1 is in backoff"
    rig.advance(5_000)
    assert lag(rig) == (3, 0)
    (first,) = rig.receive(count=1)
    assert lag(rig) == (0, 2), "a1 is in flight again"
    rig.nack(first)
    if restart:
        rig.crash()
    assert lag(rig) == (0, 2), "a1 is a dead letter and parks its group"
    rig.engine.dead.drop("billing", [0], rig.now_ms)
    assert lag(rig) == (2, 0)


def test_a_retry_is_not_ready_behind_another_of_its_message_group() -> None:
    rig = HeldRig()
    rig.put("a1", "a2")
    first, second = rig.receive()
    rig.nack(first, 60_000)
    rig.nack(second, 1_000)
    rig.advance(2_000)
    assert lag(rig) == (0, 1)


def test_unread_messages_behind_a_full_gate_are_not_ready() -> None:
    rig = HeldRig(held_max=2)
    rig.put("a1", "a2", "a3", "a4", "a5")
    (first,) = rig.receive(count=1, lease_ms=600_000)
    assert rig.names() == []
    assert lag(rig) == (0, 4)
    rig.ack(first)
    assert lag(rig) == (4, 0)
