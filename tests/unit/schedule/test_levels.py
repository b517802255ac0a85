import pytest

from latermq_broker.config.config import DELAY_LEVELS_MS
from latermq_broker.schedule.levels import level_ms


def test_levels_are_numbered_from_one_and_clamp_to_the_last() -> None:
    assert level_ms(1, DELAY_LEVELS_MS) == 1_000
    assert level_ms(5, DELAY_LEVELS_MS) == 60_000
    assert level_ms(18, DELAY_LEVELS_MS) == level_ms(99, DELAY_LEVELS_MS) == 7_200_000


@pytest.mark.parametrize("level", [0, -1])
def test_below_one_is_refused(level: int) -> None:
    with pytest.raises(ValueError, match="below 1"):
        level_ms(level, DELAY_LEVELS_MS)
