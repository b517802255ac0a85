"""Which shard has what: pure, and the same for ever."""

import pytest

from latermq_broker.catalog.catalog import TopicType
from latermq_broker.cluster.placement import (
    Placement,
    handle_of,
    home_by_name,
    parse_handle,
    shard_name,
)


def test_homes_stay_where_they_are() -> None:
    """Golden: messages lie there. A topic may never have another home by its name."""
    assert [home_by_name(f"topic-{n}", 4) for n in range(8)] == GOLDEN


GOLDEN = [0, 1, 0, 0, 0, 0, 2, 2]


def test_homes_are_spread_evenly() -> None:
    homes = [home_by_name(f"orders-{n}", 4) for n in range(4_000)]
    assert all(900 < homes.count(shard) < 1_100 for shard in range(4))


@pytest.mark.parametrize("kind", TopicType)
def test_a_topic_is_in_all_shards_or_at_home(kind: TopicType) -> None:
    placement = Placement(4, {"pinned": 2})
    home = home_by_name("orders", 4)
    if kind in (TopicType.NORMAL, TopicType.DELAY, TopicType.MIXED):
        assert [*placement.shards("orders", kind)] == [0, 1, 2, 3]
        assert placement.home_of_send("orders", kind, ordered=False) is None
    else:
        assert [*placement.shards("orders", kind)] == [home]
        assert [*placement.shards("pinned", kind)] == [2]
        assert placement.home_of_send("orders", kind, ordered=False) == home
    assert placement.home_of_send("orders", kind, ordered=True) == home
    assert placement.home_of_send("pinned", kind, ordered=True) == 2


def test_a_handle_names_its_shard() -> None:
    assert handle_of("d-1f-2a", 17) == "d-1f-2a@17"
    assert parse_handle("d-1f-2a@17") == ("d-1f-2a", 17)
    assert handle_of("", 3) == ""
    assert parse_handle("d-1f-2a") == ("d-1f-2a", 0), "from before the cluster"
    assert parse_handle("a@b") == ("a@b", 0)


def test_names() -> None:
    assert [shard_name(number) for number in (0, 7, 255)] == ["shard-00", "shard-07", "shard-255"]
