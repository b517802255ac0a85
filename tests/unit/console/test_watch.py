"""What is remembered of the last hour, and what is concluded from it."""

from collections import deque

import pytest

from latermq_console.reading import watch
from latermq_console.reading.findings import findings
from latermq_console.reading.watch import GroupState, Sample, Watch, grown, rates, thinned
from latermq_proto.latermq.v1 import broker_pb2, group_pb2

T: int = 1_790_000_000_000


def sample(second: int, sent: int, start: int = 1) -> Sample:
    return Sample(T + second * 1_000, start, sent, 0, 0, 0, sent, 0, 0, 0.0, 0.0, 50.0)


def test_rates_are_growth_by_time_and_a_restart_is_none() -> None:
    samples = [sample(0, 10), sample(5, 60), sample(10, 4, start=2), sample(15, 14, start=2)]
    assert rates(samples, "sent") == [10, 0, 2]
    assert grown(samples, "dead") == [0, 50, 50, 60]
    assert rates(samples[:1], "sent") == []
    assert grown([], "dead") == []


def test_thinned_samples_keep_the_newest() -> None:
    samples = [sample(second, second) for second in range(719)]
    few = thinned(samples)
    assert len(few) <= watch.POINTS_MAX
    assert few[-1] is samples[-1]
    assert thinned(samples[:3]) == samples[:3]


def group(name: str = "billing", dead: int = 0, **progress: float) -> GroupState:
    made = group_pb2.Group(name=name, dead_letter_count=dead)
    for field, value in progress.items():
        setattr(made.progress, field, value)
    return GroupState(made)


def test_deaths_of_the_hour_are_counted_by_change() -> None:
    state = group(dead=5)
    state.note_dead(T)
    state.note_dead(T + 1)
    assert len(state.deads) == 1, "nothing changed"
    state.group.dead_letter_count = 9
    state.note_dead(T + 60_000)
    assert state.died_lately == 4
    state.group.dead_letter_count = 2
    state.note_dead(T + 120_000)
    assert state.died_lately == 0, "redriven"
    state.group.dead_letter_count = 3
    state.note_dead(T + watch.KEPT_MS + 130_000)
    assert state.died_lately == 1
    state.note_dead(T + 3 * watch.KEPT_MS)
    assert state.died_lately == 0


def watched(*states: GroupState, disk: broker_pb2.DiskState = broker_pb2.FINE) -> Watch:
    made = Watch.__new__(Watch)
    made.samples = deque([sample(0, 0)])
    made.groups = {state.name: state for state in states}
    made.broker = broker_pb2.Broker(disk=broker_pb2.BrokerDisk(state=disk))
    return made


def titles(made: Watch) -> list[str]:
    return [finding.title for finding in findings(made, T)]


def test_nothing_needs_a_person() -> None:
    assert titles(watched(group(ready_count=3, oldest_unread_at_ms=T - 1_000))) == []


def test_the_worst_comes_first() -> None:
    quiet = group("quiet", dead=3)
    quiet.note_dead(T)
    stuck = group("stuck", ready_count=7, oldest_unread_at_ms=T - 600_000)
    parked = group("parked", parked_message_group_count=2)
    unequal = group("unequal")
    unequal.unequal = ["orders"]
    told_titles = titles(watched(quiet, stuck, parked, unequal, disk=broker_pb2.FULL))
    assert told_titles == [
        "The disk is full: sends are refused",
        "2 message groups of parked stand still",
        "stuck falls behind: 7 messages ready",
        "3 dead letters wait for a decision",
        "Consumers of unequal filter orders differently",
    ]


@pytest.mark.parametrize(
    ("lags", "falls"),
    [(range(1, 20), True), ([5] * 20, False), ([1, 9] * 10, False), (range(3), False)],
)
def test_a_lag_that_only_grows_is_told_of(lags: list[int], falls: bool) -> None:
    state = group(ready_count=20, in_per_s=9.0, out_per_s=2.0, oldest_unread_at_ms=T - 600_000)
    state.lags.extend(lags)
    found = findings(watched(state), T)
    assert bool(found) == falls
    if found:
        assert found[0].detail.startswith("9 come each second and 2 are done")
