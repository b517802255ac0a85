"""What is compared of engines."""

from latermq_broker.delivery.leases.recently_done import RecentlyDone
from latermq_broker.delivery.leases.shared import DeliveryKey
from support.engine_facts import done_handles


def test_handles_that_are_over_are_compared_one_by_one() -> None:
    """They may be remembered together, or each for itself."""
    together, apart = RecentlyDone(10), RecentlyDone(10)
    place = DeliveryKey(1, 2, 0)
    together.remember([7, 8], 3, place, 1_000)
    for id in (7, 8):
        apart.remember([id], 3, place, 1_000)
    assert together.snapshot() != apart.snapshot()
    handles = [(7, 1_000, 3, 1, 2), (8, 1_000, 3, 1, 2)]
    assert done_handles(together.snapshot()) == done_handles(apart.snapshot()) == handles
