"""Rows and bounds of `make bench-cluster`, from figures made up here."""

from bench.cluster import growth, instructions, replay, replication, shards
from bench.cluster.growth import Growth
from bench.cluster.replay import Replay
from bench.cluster.tables import Bound, Sends, factors, medians, spread


def sends(*cpu_us: float, standby_us: float = 0.0) -> list[Sends]:
    """So many rounds."""
    return [Sends(1_000, 1.0, 2.0, each, 400.0, standby_us) for each in cpu_us]


def test_factors_are_of_each_round() -> None:
    assert factors(sends(11, 30, 45), sends(10, 20, 50)) == (1.1, 1.5, 0.9)
    assert medians(sends(30, 10, 20)).cpu_us == 20
    assert spread([1.5, 1.0, 1.25]) == "1.25 (1.00 … 1.50)"
    assert spread([1.0, 1.0]) == "1.00"


def test_a_bound_goes_by_the_median() -> None:
    kept = Bound("a", (1.0, 1.05, 2.0), 1.05)
    assert kept.kept
    assert kept.cells() == ("1.05 (1.00 … 2.00)", "≤ 1.05 ✓")
    broken = Bound("b", (1.0, 1.06, 1.06), 1.05)
    assert broken.line() == "b: 1.06 (1.00 … 1.06) times, promised 1.05: NOT KEPT"


def test_shards_stand_beside_as_many_brokers() -> None:
    found = {name: sends(100, 100, 100) for name in shards.VARIANTS}
    found["2 brokers"] = sends(150, 150, 150)
    found["2 shards"] = sends(162, 165, 168)
    lines = list(shards.text(found))
    assert "| 2 brokers | 1,000 | 1 | 2 | 150 | 1.50 |  |" in lines
    spreads = "1.65 (1.62 … 1.68) | 1.10 (1.08 … 1.12)"
    assert f"| 2 shards | 1,000 | 1 | 2 | 165 | {spreads} |" in lines


def test_a_shards_send_is_held_against_a_brokers() -> None:
    found = {0: (200_000.0, 230.0), 1: (202_000.0, 230.0), 4: (214_000.0, 240.0)}
    kept = {number: bound.kept for number, bound in instructions.promises(found).items()}
    assert kept == {1: True, 4: False}
    lines = list(instructions.text(found))
    assert "| a broker alone | 200.0 | 230 |  |  |" in lines
    assert "| the first of 4 | 214.0 | 240 | 1.07 | ≤ 1.05 ✗ |" in lines


def test_replicas_are_held_against_sync_under_each_load() -> None:
    of_load = {name: sends(100) for name in replication.FLUSHES}
    of_load[replication.KAFKA] = sends(120)
    of_load[replication.STANDBY] = sends(160, standby_us=40)
    found = dict.fromkeys(replication.LOADS, of_load)
    promised = replication.promises(found)
    assert list(promised) == list(replication.LOADS)
    assert all(bound.kept for of in promised.values() for bound in of.values())
    lines = list(replication.text(found, 1))
    assert "| Kafka | 1,000 | 1 | 2 | 120 | 1.20 | ≤ 1.25 ✓ | 400 |  |  |" in lines
    assert f"| {replication.STANDBY} | 1,000 | 1 | 2 | 160 | 1.60 |  | 400 | 40 | 0.25 |" in lines
    assert "| `sync` | 1,000 | 1 | 2 | 100 | 1.00 |  |  |  |  |" in lines


def test_what_is_replayed_and_what_grows_has_a_row() -> None:
    rows = list(replay.text([Replay(300.0, 4.0, 6.0, 5.5), Replay(300.0, 5.0, 7.5, 5.5)]))
    assert "| 1 | 300 | 4 | 75 | 6 | 50 | 5.5 |" in rows
    assert rows[-1].startswith("| **medians** | 300 | 4.5 |")
    assert "| 4 | 2 | 200 | 50 | 260 | 0.5 | 0.125 | 384 |" in growth.text(
        [Growth(4, 2.0, 200.0, 260.0, 0.5, 384)], 10
    )
