"""What is wrong with Kafka's topics or its clock, as far as it needs no Kafka to see it."""

from types import SimpleNamespace

import pytest

from latermq_broker.replication.kafka_topics import Wanted, clock_gap_ms, warn_of_few_in_sync

WANTED = Wanted("shop", 1, replicas=3, replicas_min=2)


@pytest.mark.parametrize(
    ("told_ms", "gap_ms"), [(1_000, 0), (1_050, 0), (1_100, 0), (3_100, 2_000), (400, -600)]
)
def test_clocks_are_apart_by_what_the_way_does_not_explain(told_ms: int, gap_ms: int) -> None:
    assert clock_gap_ms(1_000, told_ms, 1_100) == gap_ms


def test_replicas_that_are_behind_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    whole = SimpleNamespace(isrs=[1, 2, 3])
    warn_of_few_in_sync(WANTED, [whole])
    assert not caplog.text
    warn_of_few_in_sync(WANTED, [whole, SimpleNamespace(isrs=[1])])
    assert "has 1 of 3 replicas in sync, and takes nothing with fewer than 2" in caplog.text
