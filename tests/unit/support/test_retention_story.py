"""When the retention story takes a missing message for lost."""

import pytest

from support.retention_story import Story


@pytest.mark.parametrize(
    ("looked", "lost"),
    [
        ([99_000, 99_900, 108_500], False),  # nobody looked while it was there
        ([99_000], False),
        ([99_000, 101_500, 108_500], True),
        ([99_000, 100_500, 106_900], True),  # soon after its time, and once more before the end
    ],
)
def test_who_looked_must_have_got_it(looked: list[int], lost: bool) -> None:
    story = Story(seed=1, wait_ms_max=10, retention_ms=8_000, expired_unread=1)
    story.expected["wait 1 100000"] = 1
    story.due["wait 1 100000"] = 100_000
    story.looked = looked
    if lost:
        with pytest.raises(AssertionError):
            story.check()
    else:
        story.check()


def test_more_missing_than_the_broker_counted_are_lost() -> None:
    story = Story(seed=1, wait_ms_max=10, retention_ms=8_000)
    story.expected["wait 1 100000"] = 1
    story.due["wait 1 100000"] = 100_000
    with pytest.raises(AssertionError):
        story.check()
