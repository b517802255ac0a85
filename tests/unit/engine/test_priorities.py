"""What a reply of a topic with priorities takes of which."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import Outgoing, TopicType
from support.engine_rig import EngineRig

QUEUES = 4


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_that_come_due_together_never_make_a_reply_longer(count: int, *, fifo: bool) -> None:
    rig = EngineRig(delivery=DeliveryConfig(lower_priority_percent=10))
    rig.engine.topics.create("orders", TopicType.PRIORITY, QUEUES, rig.now_ms)
    rig.engine.groups.create("billing", fifo=fifo, max_attempts=16, backoff=None, now_ms=rig.now_ms)
    names = [f"m{number}" for number in range(400)]
    rig.engine.send(
        [
            Outgoing("orders", b"x", name.encode(), name, priority=number % QUEUES)
            for number, name in enumerate(names)
        ],
        rig.now_ms,
    )
    rig.engine.write()
    came: list[int] = []
    for _ in range(60 // count):
        delivered = rig.receive(count=count)
        assert len(delivered) == count
        came += (each.queue_id for each in delivered)
    assert all(came.count(priority) in (5, 6) for priority in range(QUEUES - 1))
