"""A topic in one shard of a cluster: names, and what a checkpoint of one broker becomes."""

from latermq.spark.losses import Losses
from latermq.spark.offsets import Offsets
from latermq.spark.options import Subscription
from latermq.spark.places import place_of, shard_of, topic_of
from latermq.spark.planner import Planner
from latermq.spark.ranges import QueueEnds, QueueRange, TopicEnds


def test_shard_0_has_the_names_of_a_broker_that_is_alone() -> None:
    assert [place_of("orders", shard) for shard in (0, 1, 12)] == [
        "orders",
        "orders@1",
        "orders@12",
    ]
    for shard in (0, 1, 12):
        place = place_of("%DLQ%billing", shard)
        assert (topic_of(place), shard_of(place)) == ("%DLQ%billing", shard)


def test_a_checkpoint_of_one_broker_goes_on_in_its_cluster() -> None:
    """It is shard 0 there; what is in the others is read from its earliest."""
    planner = Planner(Subscription(topics=("orders",)), Losses(fail=True))
    before = Offsets({"orders": {0: 7}}, {"orders": "aa"})
    ends = {
        "orders": TopicEnds("aa", {0: QueueEnds(0, 9)}),
        "orders@1": TopicEnds("bb", {0: QueueEnds(2, 5)}),
    }
    after, waiting = planner.advance(before, ends, None)
    assert waiting == 5
    assert planner.ranges(before, after, ends) == [
        QueueRange("orders", "aa", 0, 7, 9),
        QueueRange("orders@1", "bb", 0, 2, 5),
    ]
    assert Offsets.decode(after.encode()) == after


def test_a_topic_that_only_another_shard_has_is_there() -> None:
    """As dead letters are, which each shard has of its own."""
    planner = Planner(Subscription(topics=("%DLQ%billing",)), Losses(fail=True))
    ends = {"%DLQ%billing@1": TopicEnds("bb", {0: QueueEnds(0, 3)})}
    end, waiting = planner.advance(Offsets(), ends, None)
    assert (waiting, end.topics) == (3, {"%DLQ%billing@1": {0: 3}})


def test_a_pattern_is_of_topics() -> None:
    assert "orders@1" in Subscription(pattern="orders")
    assert "orders@1" in Subscription(topics=("orders",))
    assert "payments@1" not in Subscription(topics=("orders",))
