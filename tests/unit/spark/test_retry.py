"""latermq.spark.retry: how long to wait for a broker."""

import pytest

from latermq.spark.errors import BrokerUnreachableError
from latermq.spark.retry import Patience


class Sleeper:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.waits_ms: list[float] = []

    def clock_ms(self) -> int:
        return int(self.now_ms)

    def sleep(self, milliseconds: float) -> None:
        self.waits_ms.append(milliseconds)
        self.now_ms += milliseconds


def test_waits_double_up_to_two_seconds_and_end_in_time() -> None:
    sleeper = Sleeper()
    patience = Patience(30_000, sleeper.clock_ms, sleeper.sleep)
    while sleeper.now_ms < 29_999:
        patience.failed("call", "why")
    sleeper.now_ms = 30_000
    with pytest.raises(BrokerUnreachableError, match=r"UNREACHABLE: call failed for 30\.0 s \(why"):
        patience.failed("call", "why")
    for wait_ms, expected in zip(
        sleeper.waits_ms, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000], strict=False
    ):
        assert 0.75 * expected <= wait_ms <= 1.25 * expected
    assert max(sleeper.waits_ms) <= 2_500


def test_progress_starts_the_patience_anew() -> None:
    sleeper = Sleeper()
    patience = Patience(1_000, sleeper.clock_ms, sleeper.sleep)
    for _ in range(20):
        patience.failed("call", "why")
        sleeper.now_ms += 900
        patience.progressed()
    assert patience.failure_count == 0
