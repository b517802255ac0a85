"""The groups that need a look first: how often all of them are looked at."""

from collections.abc import Iterator

import pytest

from latermq_broker.engine.views.group_ranking import (
    SUBSCRIPTIONS_A_KEPT_MS,
    GroupOrder,
)
from support.v1_rig import V1Rig

SUBSCRIPTIONS = 300
KEPT_MS = SUBSCRIPTIONS // SUBSCRIPTIONS_A_KEPT_MS


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    rig.send_message("m-1")
    topic = rig.engine.catalog.require_topic("orders")
    for number in range(SUBSCRIPTIONS):
        rig.make_group(f"group-{number:03}")
        group = rig.engine.catalog.require_group(f"group-{number:03}")
        rig.engine._state.subscription(group.id, topic.id)
    yield rig
    rig.close()


def looks(rig: V1Rig) -> int:
    """Renew the ranking; in how many parts all groups were looked at, 0: they were not."""
    return len(list(rig.engine.ranking.renew(rig.now_ms)))


def first(rig: V1Rig, order: GroupOrder = GroupOrder.BY_FAILURES) -> str:
    return rig.engine.ranking.first(order, 1)[0].name


def test_all_groups_are_looked_at_in_parts_and_not_for_each_who_asks(rig: V1Rig) -> None:
    assert looks(rig) == 2
    assert looks(rig) == 0
    rig.advance(KEPT_MS - 1)
    assert looks(rig) == 0
    rig.advance(1)
    assert looks(rig) == 2


def test_what_happens_meanwhile_shows_after_the_next_look(rig: V1Rig) -> None:
    looks(rig)
    assert first(rig) == "group-000"
    rig.fail(group="group-123")
    assert first(rig) == "group-000"
    rig.advance(KEPT_MS)
    looks(rig)
    assert first(rig) == "group-123"


def test_a_group_that_was_deleted_since_is_left_out(rig: V1Rig) -> None:
    rig.fail(group="group-123")
    looks(rig)
    assert first(rig) == "group-123"
    rig.engine.groups.delete("group-123", rig.now_ms)
    assert first(rig) == "group-000"
    assert len(rig.engine.ranking.first(GroupOrder.BY_AGE, 1_000)) == SUBSCRIPTIONS - 1


def test_two_who_ask_at_once_cause_one_look(rig: V1Rig) -> None:
    looks(rig)
    rig.advance(KEPT_MS)
    looking = rig.engine.ranking.renew(rig.now_ms)
    next(looking)
    assert looks(rig) == 0
    del looking  # who asked has gone
    rig.advance(KEPT_MS)
    assert looks(rig) == 2
