"""How a shard's entries become those of shard 0: only a deletion that is told deletes."""

import itertools

from latermq_broker.cluster.catalogue_plan import Link, Plan, plan

LINKED = {"orders": Link("first-1", "own-1")}


def test_what_shard_0_has_is_made_and_made_alike() -> None:
    made = plan({"here": "h"}, {"here": "x", "there": "y"}, {}, ())
    assert made == Plan(deleted=[], made=["there"], compared=["here"], news=[])


def test_what_first_use_made_here_is_news() -> None:
    assert plan({"here": "h"}, {}, {}, ()).news == ["here"]


def test_a_copy_of_what_was_deleted_is_deleted() -> None:
    deleted = [("orders", "first-1")]
    assert plan({"orders": "own-1"}, {}, LINKED, deleted).deleted == ["orders"]
    anew = plan({"orders": "own-1"}, {"orders": "first-2"}, LINKED, deleted)
    assert (anew.deleted, anew.made, anew.compared) == (["orders"], ["orders"], [])


def test_what_was_made_anew_here_since_is_no_copy() -> None:
    made = plan({"orders": "own-2"}, {}, LINKED, [("orders", "first-1")])
    assert (made.deleted, made.news) == ([], ["orders"])


def test_a_shard_0_that_lost_its_directory_is_told_everything() -> None:
    assert plan({"orders": "own-1"}, {}, LINKED, ()).news == ["orders"]
    other = plan({"orders": "own-1"}, {"orders": "another"}, LINKED, ())
    assert (other.deleted, other.compared) == ([], ["orders"])


def test_nothing_goes_that_was_not_deleted_whatever_is_known() -> None:
    """All that two names can be, here, there, linked and deleted."""
    choices = (None, "1", "2")
    for own, first, linked, deleted in itertools.product(choices, choices, choices, choices):
        link = {} if linked is None else {"t": Link(linked, linked)}
        result = plan(
            {} if own is None else {"t": own},
            {} if first is None else {"t": first},
            link,
            [] if deleted is None else [("t", deleted)],
        )
        goes = own is not None and own == linked == deleted
        assert (result.deleted == ["t"]) == goes
        places = [result.made, result.compared, result.news, result.deleted]
        if own is not None or first is not None:
            assert any("t" in place for place in places)
