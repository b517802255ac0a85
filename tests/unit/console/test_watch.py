"""What is remembered of the last hour, and what is concluded from it."""

from collections import deque

import pytest

from latermq_console.reading import watch
from latermq_console.reading.findings import findings
from latermq_console.reading.watch import (
    Deaths,
    GroupState,
    Sample,
    Watch,
    counted,
    grown,
    rates,
    thinned,
)
from latermq_proto.latermq.v1 import broker_pb2, group_pb2

T: int = 1_790_000_000_000


def sample(second: int, sent: int) -> Sample:
    return Sample(T + second * 1_000, sent, 0, 0, 0, sent, 0, 0, 0.0, 0.0, 50.0)


def test_rates_are_growth_by_time() -> None:
    samples = [sample(0, 10), sample(5, 60), sample(10, 60), sample(15, 70)]
    assert rates(samples, "sent") == [10, 0, 2]
    assert grown(samples, "dead") == [0, 50, 50, 60]
    assert rates(samples[:1], "sent") == []
    assert grown([], "dead") == []


def said(sent: int, start: int = 1) -> broker_pb2.Broker:
    return broker_pb2.Broker(
        started_at_ms=start, totals=broker_pb2.BrokerTotals(messages_sent=sent)
    )


def test_of_each_shard_is_counted_what_it_added_and_a_restart_or_silence_is_none() -> None:
    assert counted([], {}, {0: said(10)})["sent"] == 0
    assert counted([sample(0, 7)], {}, {0: said(10)})["sent"] == 7, "another watch's"
    both = {0: said(10), 1: said(100)}
    for now, sent in (
        ({0: said(12), 1: said(101)}, 3),
        ({0: said(12), 1: said(4, start=2)}, 2),
        ({0: said(12)}, 2),
        ({0: said(12), 1: said(99)}, 2),
    ):
        assert counted([sample(0, 0)], both, now)["sent"] == sent
    assert counted([sample(0, 0)], {0: said(10)}, both)["sent"] == 0, "it was silent"


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


def test_consumers_that_hold_all_and_finish_none_are_found_though_nothing_is_ready() -> None:
    state = group(in_flight_count=32)
    long_ago = T - 16 * 60_000
    state.note_progress(long_ago)
    state.note_progress(T)
    (finding,) = findings(watched(state), T)
    assert finding.title == "Consumers of billing hold 32 messages and finish none"
    assert finding.href == "/groups/billing"
    for moving in (
        group(in_flight_count=32, out_per_s=0.1),
        group(in_flight_count=32, failed_per_s=0.1),
    ):
        moving.hung_since_ms = long_ago
        moving.note_progress(T)
        assert not findings(watched(moving), T)
    young = group(in_flight_count=32)
    young.note_progress(T - 60_000)
    assert not findings(watched(young), T)


def test_deaths_of_the_hour_are_counted_by_change() -> None:
    deaths = Deaths()
    deaths.note(T, 5)
    deaths.note(T + 1, 5)
    assert len(deaths.counts) == 1, "nothing changed"
    deaths.note(T + 60_000, 9)
    assert deaths.lately == 4
    deaths.note(T + 120_000, 2)
    assert deaths.lately == 0, "redriven"
    deaths.note(T + watch.KEPT_MS + 130_000, 3)
    assert deaths.lately == 1
    deaths.note(T + 3 * watch.KEPT_MS, 3)
    assert deaths.lately == 0


def test_letters_of_a_shard_that_is_silent_do_not_die_again_when_it_is_back() -> None:
    state = group(dead=5)
    for shard, counts in {0: [(T, 2), (T + 1, 4)], 1: [(T, 3), (T + 9, 3)]}.items():
        deaths = state.deaths[shard] = Deaths()
        for at_ms, count in counts:
            deaths.note(at_ms, count)
    assert state.died_lately == 2
    assert state.dead_line() == [5, 7]


def watched(*states: GroupState, disk: broker_pb2.DiskState = broker_pb2.FINE) -> Watch:
    made = Watch.__new__(Watch)
    made.samples = deque([sample(0, 0)])
    made.groups = {state.name: state for state in states}
    made.brokers = {0: broker_pb2.Broker(disk=broker_pb2.BrokerDisk(state=disk))}
    made.several = False
    return made


def titles(made: Watch) -> list[str]:
    return [finding.title for finding in findings(made, T)]


@pytest.mark.parametrize(
    ("count", "error", "rounds"),
    [
        (0, "", [0, 1, 2, 3, 4, 5]),
        (watch.GROUPS_FEW, "", [0, 1, 2, 3, 4, 5]),
        (watch.GROUPS_FEW + 1, "", [0, 3]),
        (0, "you may not", [0, 3]),
    ],
)
def test_few_groups_are_listed_as_often_as_letters_are_counted(
    count: int, error: str, rounds: list[int]
) -> None:
    made = watched(*(group(f"group-{number}") for number in range(count)))
    made.groups_error = error
    assert [number for number in range(6) if made.lists_groups(number)] == rounds


def test_nothing_needs_a_person() -> None:
    assert titles(watched(group(ready_count=3, oldest_unread_at_ms=T - 1_000))) == []


def test_the_worst_comes_first() -> None:
    quiet = group("quiet", dead=3)
    quiet.deaths[0] = Deaths()
    quiet.deaths[0].note(T, 3)
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


def test_of_several_shards_the_one_in_trouble_is_named() -> None:
    made = watched()
    made.several = True
    made.brokers[1] = broker_pb2.Broker(
        disk=broker_pb2.BrokerDisk(state=broker_pb2.LOW),
        totals=broker_pb2.BrokerTotals(
            lateness_p99_ms=2_000, loop_lag_p99_ms=300, messages_unreadable=1
        ),
    )
    found = findings(made, T)
    assert [each.title for each in found] == [
        "The disk of shard 1 is nearly full: old messages go before their age",
        "Delayed messages of shard 1 come up to 2 s late",
        "The broker of shard 1 answers up to 300 ms late",
        "1 message of shard 1 could not be read",
    ]
    assert {each.href for each in found} == {"/broker?shard=1"}


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
