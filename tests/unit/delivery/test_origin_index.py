"""The index by message: how many rows a search looks at, whatever else is in hand."""

from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.shared import NOBODY, DeliveryKey, Origin
from latermq_broker.delivery.leases.slab import Slab

LOOKS_MEAN_MAX = 3


def test_a_search_looks_at_a_few_rows_of_many() -> None:
    """20,000 deliveries: 100 groups at the same offsets, in 4 queues of 5 topics."""
    slab = Slab()
    rows = 0
    for group_id in range(1, 101):
        for topic_id in range(1, 6):
            for queue_id in range(4):
                place = slab.places.hold(DeliveryKey(group_id, topic_id, queue_id), 10)
                slab.origins.know(place)
                taken = slab.take_all(10)
                for offset, row in enumerate(taken):
                    slab.place[row], slab.offset[row], slab.id[row] = place, offset, row
                slab.origins.add(taken)
                rows += 10
    looks = 0
    for row in range(1, rows + 1):
        at = slab.origins.first(slab.origins.number(row))
        looks += 1
        while at != row:
            at = slab.origin_chain[at]
            looks += 1
    assert looks / rows <= LOOKS_MEAN_MAX
    found = list(slab.origins.find(7, Origin(3, 2, 9)))
    assert len(found) == 1
    assert slab.places.values[slab.place[found[0]]] == (7, 3, 2, 0, 0, 0, 0, 0, 0)
    assert not list(slab.origins.find(7, Origin(3, 2, 10)))


def test_messages_are_found_by_what_they_were_first() -> None:
    leases = Leases()
    redriven = leases.add(
        id=1, group_id=1, topic_id=5, queue_id=0, offset=9, position=8, length=1, tag_hash=0,
        origin_topic_id=3, origin_queue_id=2, redrive=1,
    )  # fmt: skip
    leases.lend_new(2, [DeliveryKey(1, 5, 0)] * 40, range(40), [8] * 40, [1] * 40, NOBODY, 0, 1)
    find = leases.deliveries.of_message
    assert [one.id for one in find(1, Origin(3, 2, 9))] == [1]
    assert [one.id for one in find(1, Origin(5, 0, 9))] == [11]
    assert not list(find(2, Origin(5, 0, 9)))
    leases.drop(redriven)
    assert not list(find(1, Origin(3, 2, 9)))
