"""Times of day against a list: what was shown when a message was stored, whatever the clock does.

The wall clock steps both ways, the machine is suspended, the broker dies and is restored from its
log or a checkpoint, with a clock that is right, ahead or behind. Held all the time: each message is
told at the time of day that its sender read; a search by time finds those between, and no other;
a group that is reset to a time of day is given all that was stored since, and nothing else as
long as the clock never went back.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.engine.state.wall_clock import STEPS_MAX, WallClock
from support.engine_facts import facts
from support.engine_rig import EngineRig
from support.small_bounds import MODEL_STORE

TOPIC, GROUP = "orders", "billing"
STEPS_MS = (-86_400_000, -3_600_000, -1_500, -3, 20, 2_500, 28_800_000, 86_400_000)


class WallClockMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = EngineRig(store=MODEL_STORE)
        self.rig.engine.ensure_topic(TOPIC, self.rig.now_ms)
        self.rig.engine.ensure_group(GROUP, self.rig.now_ms)
        self.shown: list[int] = []
        self.went_back = False

    def teardown(self) -> None:
        self.rig.engine.abandon()

    @property
    def wall_ms(self) -> int:
        return self.rig.now_ms + self.rig.ahead_ms

    @rule()
    def send(self) -> None:
        self.rig.send(f"m{len(self.shown)}", topic=TOPIC)
        self.shown.append(self.wall_ms)

    @rule(step_ms=st.sampled_from((1, 700, 60_000)))
    def time_passes(self, step_ms: int) -> None:
        self.rig.advance(step_ms)

    @rule(step_ms=st.sampled_from(STEPS_MS))
    def somebody_sets_the_clock(self, step_ms: int) -> None:
        self.went_back |= step_ms < 0
        self.rig.step_wall(step_ms)
        self.rig.now_ms += 1  # the record of a step is later than all before it

    @rule(
        away_ms=st.sampled_from((0, 3_000, 28_800_000)),
        ahead_ms=st.sampled_from((0, 0, 3_600_000, -3_600_000)),
        checkpoint=st.booleans(),
    )
    def dies_and_comes_back(self, away_ms: int, ahead_ms: int, checkpoint: bool) -> None:
        """Another life measures its own time anew, from the wall clock or from the log's end."""
        if checkpoint:
            self.rig.checkpoint()
        self.rig.engine.write()
        before = facts(self.rig.engine)
        self.rig.now_ms += away_ms
        self.went_back |= ahead_ms < self.rig.ahead_ms
        self.rig.ahead_ms = ahead_ms
        self.rig.crash()
        assert {**facts(self.rig.engine), "clock": None} == {**before, "clock": None}
        self.rig.engine.write()
        self.rig.now_ms += 1

    @precondition(lambda self: bool(self.shown))
    @rule(data=st.data(), near_ms=st.sampled_from((-3_600_000, -1, 0, 1, 1_000)))
    def reset(self, data: st.DataObject, near_ms: int) -> None:
        to_ms = data.draw(st.sampled_from(self.shown)) + near_ms
        [offset] = self.rig.engine.groups.reset(GROUP, TOPIC, to_ms, self.rig.now_ms)
        self.rig.engine.write()
        assert self.rig.engine.queues.offset_at(TOPIC, 0, to_ms) == offset
        assert all(shown < to_ms for shown in self.shown[:offset])
        if not self.went_back:
            assert all(shown >= to_ms for shown in self.shown[offset:])

    @precondition(lambda self: bool(self.shown))
    @rule(data=st.data(), lasting_ms=st.sampled_from((0, 1, 2_000, 3_600_000, 100_000_000)))
    def find(self, data: st.DataObject, lasting_ms: int) -> None:
        begin_ms = data.draw(st.sampled_from(self.shown))
        end_ms = begin_ms + lasting_ms
        found, _ = self.rig.engine.messages.by_time(TOPIC, begin_ms, end_ms, None, 10_000)
        assert [hit.queue_offset for hit in found] == [
            offset for offset, shown in enumerate(self.shown) if begin_ms <= shown <= end_ms
        ]

    @invariant()
    def each_is_told_at_the_time_that_its_sender_read(self) -> None:
        engine = self.rig.engine
        found, _ = engine.messages.by_time(TOPIC, 0, 0, None, 10_000)
        assert [engine.wall.time_of_day(hit.stored_ms) for hit in found] == self.shown
        topic = engine.catalog.require_topic(TOPIC)
        assert engine.topics.oldest_ms(topic) == (self.shown[0] if self.shown else 0)


TestWallClock = WallClockMachine.TestCase
TestWallClock.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(-60, 60)), max_size=6), st.integers(1, 400)
)
def test_both_ways_against_a_walk_through_all_times(
    steps: list[tuple[int, int]], wall_ms: int
) -> None:
    wall, ahead_ms, shown = WallClock(), 0, [0]
    for lasting_ms, next_ahead_ms in steps:
        shown += [len(shown) + n + ahead_ms for n in range(lasting_ms)]
        ahead_ms = next_ahead_ms
        wall.step(len(shown), ahead_ms)
    shown += [at + ahead_ms for at in range(len(shown), len(shown) + 1_000)]
    assert [wall.time_of_day(at) for at in range(1, len(shown))] == shown[1:]
    times = [at for at in range(1, len(shown)) if shown[at] >= wall_ms]
    assert max(wall.first_at(wall_ms), 1) == times[0]
    before = [at for at in range(1, len(shown)) if shown[at] <= wall_ms]
    assert max(wall.last_at(wall_ms), 0) == (before[-1] if before else 0)
    again = WallClock()
    again.restore(wall.steps())
    assert again.steps() == wall.steps()
    assert again.noted_ahead_ms == wall.noted_ahead_ms


def test_of_more_steps_than_are_remembered_the_oldest_go() -> None:
    wall = WallClock()
    for number in range(STEPS_MAX + 5):
        wall.step(1_000 + 10 * number, 1 + number % 2)
    assert len(wall.steps()) == STEPS_MAX + 1
    assert wall.time_of_day(1_000 + 10 * (STEPS_MAX + 4)) > wall.time_of_day(
        1_000 + 10 * (STEPS_MAX + 3)
    )
