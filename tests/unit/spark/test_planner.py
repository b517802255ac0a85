"""latermq.spark.planner: where to start, how far to go, what is lost."""

import logging

import pytest

from latermq.spark.errors import DataLossError, OptionError, TopicNotFoundError
from latermq.spark.losses import Losses
from latermq.spark.offsets import Offsets
from latermq.spark.options import Boundary, Edge, Subscription
from latermq.spark.planner import Planner
from latermq.spark.ranges import Ends, QueueEnds, QueueRange, TopicEnds

STRICT = Planner(Subscription(topics=("a", "b")), Losses(fail=True))
LENIENT = Planner(Subscription(topics=("a", "b")), Losses(fail=False))


def ends(**topics: dict[int, tuple[int, int]] | tuple[str, dict[int, tuple[int, int]]]) -> Ends:
    """name={queue: (earliest, next)}, or (epoch, {…}); the epoch is `e` otherwise."""
    held = {}
    for name, value in topics.items():
        epoch, queues = value if isinstance(value, tuple) else ("e", value)
        held[name] = TopicEnds(epoch, {each: QueueEnds(*queues[each]) for each in queues})
    return held


def at(**topics: dict[int, int]) -> Offsets:
    return Offsets(topics, dict.fromkeys(topics, "e"))


HELD = ends(a={0: (10, 100), 1: (0, 50)}, b={0: (0, 0)})


class TestBoundary:
    def test_earliest_and_latest(self) -> None:
        earliest = STRICT.boundary(Boundary(edge=Edge.EARLIEST), HELD, "startingOffsets")
        assert earliest == at(a={0: 10, 1: 0}, b={0: 0})
        latest = STRICT.boundary(Boundary(edge=Edge.LATEST), HELD, "endingOffsets")
        assert latest == at(a={0: 100, 1: 50}, b={0: 0})

    def test_a_time_is_the_first_offset_stored_then(self) -> None:
        held = {
            "a": TopicEnds("e", {0: QueueEnds(10, 100, 42)}),
            "b": TopicEnds("e", {0: QueueEnds(0, 0, 0)}),
        }
        boundary = Boundary(edge=Edge.TIME, at_ms=5)
        assert STRICT.boundary(boundary, held, "startingTimestamp") == at(a={0: 42}, b={0: 0})

    def test_named_offsets_and_kafkas_two_numbers(self) -> None:
        boundary = Boundary(edge=Edge.OFFSETS, offsets={"a": {0: -1, 1: -2}})
        resolved = STRICT.boundary(boundary, HELD, "startingOffsets")
        assert resolved == at(a={0: 100, 1: 0}, b={0: 0})

    def test_a_queue_that_is_not_named(self) -> None:
        boundary = Boundary(edge=Edge.OFFSETS, offsets={"a": {1: 7}})
        assert STRICT.boundary(boundary, HELD, "startingOffsets").topics["a"] == {0: 10, 1: 7}
        assert STRICT.boundary(boundary, HELD, "endingOffsets").topics["a"] == {0: 100, 1: 7}

    @pytest.mark.parametrize(
        ("offsets", "text"),
        [
            ({"c": {0: 1}}, "topic c, which is not subscribed to"),
            ({"a": {7: 1}}, "topic a has no queue 7"),
            ({"a": {1: 51}}, "topic a queue 1 ends at 50, not 51"),
        ],
    )
    def test_offsets_that_make_no_sense(
        self, offsets: dict[str, dict[int, int]], text: str
    ) -> None:
        with pytest.raises(OptionError, match=rf"startingOffsets.*{text}"):
            STRICT.boundary(Boundary(edge=Edge.OFFSETS, offsets=offsets), HELD, "startingOffsets")

    def test_below_the_oldest_is_data_loss(self) -> None:
        boundary = Boundary(edge=Edge.OFFSETS, offsets={"a": {0: 3}})
        with pytest.raises(DataLossError, match=r"offset 3 .* oldest retained is 10: 7 messages"):
            STRICT.boundary(boundary, HELD, "startingOffsets")
        assert LENIENT.boundary(boundary, HELD, "startingOffsets").topics["a"][0] == 10

    def test_a_topic_that_does_not_exist(self) -> None:
        with pytest.raises(TopicNotFoundError, match=r"^LATERMQ_TOPIC_NOT_FOUND: .*no topic b "):
            STRICT.boundary(Boundary(edge=Edge.EARLIEST), ends(a={0: (0, 1)}), "startingOffsets")

    def test_a_pattern_that_matches_nothing_yet_is_fine(self) -> None:
        planner = Planner(Subscription(pattern="x.*"), Losses(fail=True))
        assert planner.boundary(Boundary(edge=Edge.LATEST), {}, "startingOffsets") == Offsets()


class TestAdvance:
    def test_everything(self) -> None:
        end, waiting = STRICT.advance(at(a={0: 90, 1: 50}, b={0: 0}), HELD, None)
        assert (end, waiting) == (at(a={0: 100, 1: 50}, b={0: 0}), 10)

    def test_a_limit_is_shared(self) -> None:
        end, waiting = STRICT.advance(at(a={0: 10, 1: 0}, b={0: 0}), HELD, 60)
        assert (end, waiting) == (at(a={0: 40, 1: 30}, b={0: 0}), 140)

    def test_a_new_queue_begins_at_its_earliest(self) -> None:
        end, waiting = STRICT.advance(at(a={0: 100}, b={0: 0}), HELD, 20)
        assert (end, waiting) == (at(a={0: 100, 1: 20}, b={0: 0}), 50)

    def test_a_topic_that_is_not_subscribed_to_is_carried_along(self) -> None:
        start = at(a={0: 100, 1: 50}, b={0: 0}, old={3: 7})
        assert STRICT.advance(start, HELD, None) == (start, 0)

    def test_a_topic_that_did_not_exist_gets_its_epoch_without_loss(self) -> None:
        start = Offsets({"a": {0: 100, 1: 50}, "b": {0: 0}}, {"a": "e"})
        end, _ = STRICT.advance(start, HELD, None)
        assert end.epochs == {"a": "e", "b": "e"}

    def test_a_topic_added_to_the_subscription_must_exist(self) -> None:
        with pytest.raises(TopicNotFoundError, match="no topic b"):
            STRICT.advance(at(a={0: 1}), ends(a={0: (0, 1)}), None)

    def test_retention_passed_the_start(self, caplog: pytest.LogCaptureFixture) -> None:
        start = at(a={0: 4, 1: 50}, b={0: 0})
        with pytest.raises(DataLossError, match=r"topic a queue 0: offset 4 .*10: 6 messages"):
            STRICT.advance(start, HELD, None)
        with caplog.at_level(logging.WARNING, "latermq.spark"):
            end, waiting = LENIENT.advance(start, HELD, 5)
        assert (end.topics["a"], waiting) == ({0: 15, 1: 50}, 90)
        assert caplog.messages == [
            "LATERMQ_DATA_LOSS: topic a queue 0: offset 4 was to be read, the oldest retained is "
            "10: 6 messages are gone"
        ]

    def test_a_topic_made_anew_begins_at_its_earliest(self) -> None:
        start = Offsets({"a": {0: 20, 1: 20}, "b": {0: 0}}, {"a": "old", "b": "e"})
        with pytest.raises(DataLossError, match=r"topic a was .* made anew \(epoch old, now e\)"):
            STRICT.advance(start, HELD, None)
        end, waiting = LENIENT.advance(start, HELD, 10)
        assert (end.topics["a"], end.epochs["a"], waiting) == ({0: 15, 1: 5}, "e", 140)

    def test_a_log_that_lost_its_end_is_read_anew(self) -> None:
        start = at(a={0: 101, 1: 50}, b={0: 0})
        with pytest.raises(DataLossError, match="topic a queue 0: it ends at offset 100, 101 was"):
            STRICT.advance(start, HELD, None)
        end, waiting = LENIENT.advance(start, HELD, 10)
        assert (end.topics["a"], end.epochs["a"], waiting) == ({0: 15, 1: 5}, "e~1", 140)
        assert STRICT.advance(end, HELD, None) == (
            Offsets({"a": {0: 100, 1: 50}, "b": {0: 0}}, {"a": "e~1", "b": "e"}),
            130,
        )

    def test_a_deleted_topic(self) -> None:
        start = at(a={0: 90, 1: 50}, b={0: 0})
        held = ends(b={0: (0, 3)})
        with pytest.raises(DataLossError, match="topic a does not exist any more"):
            STRICT.advance(start, held, None)
        assert LENIENT.advance(start, held, None) == (at(a={0: 90, 1: 50}, b={0: 3}), 3)


class TestRanges:
    def test_by_topic_and_queue(self) -> None:
        start, end = at(b={0: 0}, a={1: 0, 0: 10}), at(b={0: 0}, a={1: 5, 0: 20})
        assert STRICT.ranges(start, end, HELD) == [
            QueueRange("a", "e", 0, 10, 20),
            QueueRange("a", "e", 1, 0, 5),
        ]

    def test_a_start_beyond_its_end_is_empty(self) -> None:
        assert STRICT.ranges(at(a={0: 90}), at(a={0: 80}), HELD) == []

    def test_a_topic_that_is_carried_along_is_not_read(self) -> None:
        assert STRICT.ranges(at(old={0: 1}), at(old={0: 2}), HELD) == []

    def test_a_batch_written_down_is_finished_with_what_is_left(self) -> None:
        start, end = at(a={0: 0, 1: 0}), at(a={0: 40, 1: 0})
        with pytest.raises(DataLossError, match=r"offset 0 .* 10: 10 messages"):
            STRICT.ranges(start, end, HELD)
        assert LENIENT.ranges(start, end, HELD) == [QueueRange("a", "e", 0, 10, 40)]

    def test_all_of_a_batch_is_gone(self) -> None:
        with pytest.raises(DataLossError, match="10: 5 messages"):
            STRICT.ranges(at(a={0: 0}), at(a={0: 5}), HELD)
        assert LENIENT.ranges(at(a={0: 0}), at(a={0: 5}), HELD) == []

    def test_the_end_of_a_batch_is_gone(self) -> None:
        start, end = at(a={0: 90}), at(a={0: 120})
        with pytest.raises(DataLossError, match="ends at offset 100, 120"):
            STRICT.ranges(start, end, HELD)
        assert LENIENT.ranges(start, end, HELD) == [QueueRange("a", "e", 0, 90, 100)]

    def test_an_epoch_that_changes_within_a_batch_means_from_the_earliest(self) -> None:
        start = Offsets({"a": {0: 70}}, {"a": "old"})
        assert STRICT.ranges(start, at(a={0: 15, 1: 5}), HELD) == [
            QueueRange("a", "e", 0, 10, 15),
            QueueRange("a", "e", 1, 0, 5),
        ]
        again = Offsets({"a": {0: 15}}, {"a": "e~1"})
        assert STRICT.ranges(at(a={0: 101}), again, HELD) == [QueueRange("a", "e", 0, 10, 15)]

    def test_the_topic_of_a_batch_is_gone(self) -> None:
        start, end = at(a={0: 10}), at(a={0: 20})
        with pytest.raises(DataLossError, match="topic a does not exist any more"):
            STRICT.ranges(start, end, {})
        anew = ends(a=("f", {0: (0, 50)}))
        with pytest.raises(DataLossError, match=r"made anew \(epoch e, now f\)"):
            STRICT.ranges(start, end, anew)
        assert LENIENT.ranges(start, end, {}) == LENIENT.ranges(start, end, anew) == []


class TestAnotherLog:
    """The log was restored: the epoch is the same, and what is behind the copy has another life."""

    STRICT = Planner(Subscription(topics=("a",)), Losses(fail=True))
    LENIENT = Planner(Subscription(topics=("a",)), Losses(fail=False))
    BEFORE = ((0, 0), (2, 7), (50, 0), (51, 8))
    RESTORED = ((0, 0), (2, 7), (40, 0), (41, 9))

    def held(self, lives: tuple[tuple[int, int], ...]) -> Ends:
        return {"a": TopicEnds("e", {0: QueueEnds(0, 100, 0, lives)})}

    def start(self, offset: int) -> Offsets:
        read, _ = self.STRICT.advance(at(a={0: 0}), self.held(self.BEFORE), offset)
        assert read.topics == {"a": {0: offset}}
        return Offsets.decode(read.encode())

    def test_the_life_of_the_last_message_is_in_the_checkpoint(self) -> None:
        lives = {offset: self.start(offset).lives for offset in (1, 2, 3, 50, 51, 52, 100)}
        assert lives == {
            1: {}, 2: {}, 3: {"a": {0: 7}}, 50: {"a": {0: 7}}, 51: {}, 52: {"a": {0: 8}},
            100: {"a": {0: 8}},
        }  # fmt: skip
        assert self.STRICT.advance(self.start(50), self.held(self.BEFORE), 0)[0] == self.start(50)

    @pytest.mark.parametrize("offset", [1, 3, 40, 41])
    def test_what_stands_in_both_is_read_on(self, offset: int) -> None:
        end, waiting = self.STRICT.advance(self.start(offset), self.held(self.RESTORED), None)
        assert (end.topics, waiting) == ({"a": {0: 100}}, 100 - offset)
        assert end.lives == {"a": {0: 9}}
        assert self.STRICT.ranges(self.start(offset), end, self.held(self.RESTORED)) == [
            QueueRange("a", "e", 0, offset, 100)
        ]

    @pytest.mark.parametrize("offset", [42, 45, 50, 52, 100])
    def test_other_messages_than_were_read_are_noticed(self, offset: int) -> None:
        start, held = self.start(offset), self.held(self.RESTORED)
        with pytest.raises(DataLossError, match=f"other messages stand before offset {offset}"):
            self.STRICT.advance(start, held, None)
        end, _ = self.LENIENT.advance(start, held, None)
        assert (end.topics, end.epochs) == ({"a": {0: 100}}, {"a": "e~1"})
        assert self.LENIENT.ranges(start, end, held) == [QueueRange("a", "e", 0, 0, 100)]
        assert self.STRICT.advance(end, held, None)[0] == end

    def test_a_planned_batch_of_the_lost_log_is_not_read_in_the_restored_one(self) -> None:
        start, end, held = self.start(3), self.start(60), self.held(self.RESTORED)
        with pytest.raises(DataLossError, match="other messages stand before offset 60"):
            self.STRICT.ranges(start, end, held)
        assert self.LENIENT.ranges(start, end, held) == []
        assert self.LENIENT.advance(end, held, None)[0].epochs == {"a": "e~1"}

    def test_a_checkpoint_or_broker_of_before_is_taken_as_it_was(self) -> None:
        old = Offsets({"a": {0: 60}}, {"a": "e"})
        assert self.STRICT.advance(old, self.held(self.RESTORED), None)[0].topics == {"a": {0: 100}}
        assert self.STRICT.advance(self.start(60), self.held(()), None)[0].topics == {"a": {0: 100}}
