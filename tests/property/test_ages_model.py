"""Several topics in one log, each with ages of its own: what goes, and what must not.

Held after every step, for every message that was ever in a queue: it is there with its bytes until
its own topic's age has passed (`topic show` tells it, and it may be changed at any time, and so may
the age for all), and while a group that reads the topic has not been given it, until the age for
that, or for ever. Before, it goes on a disk that is nearly full, once every group was given it, or
when the log is over its size; then it is counted as early. What stands in its message group behind
one that a consumer holds does not go without becoming a delivery. And the other way: what has the
age that was set for its topic leaves it soon, whatever keeps the files.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.engine.state.model import (
    Outgoing,
    TopicType,
)
from latermq_broker.errors import StoreFullError
from latermq_broker.store.files import Space
from support.ages_bench import (
    AGES_MS,
    DEFAULTS_MS,
    LINE,
    LONGER_MS,
    READERS,
    SIZES,
    SOON_MS,
    TYPES,
    UNREAD_TIMES,
    AgesBench,
    config,
)
from support.engine_facts import facts
from support.memory_files import lose_checkpoints


class AgesMachine(AgesBench):
    @initialize(
        retention_ms=st.sampled_from(DEFAULTS_MS),
        times=st.sampled_from(UNREAD_TIMES),
        bytes_max=st.sampled_from(SIZES),
        moved_max=st.sampled_from((5, 1_000, 1_000, 1_000)),
        audit_ms=st.sampled_from(LONGER_MS),
    )
    def begin(
        self, retention_ms: int, times: int, bytes_max: int, moved_max: int, audit_ms: int
    ) -> None:
        self.moved_max = moved_max
        self.engine.retention.roll_forward.moved_entries_max = moved_max
        self.ages_for_all_change(retention_ms, times, bytes_max)
        self.age_of_a_topic_changes("audit", audit_ms, UNSET)

    @rule(
        topic=st.sampled_from(list(TYPES)),
        count=st.integers(1, 20),
        key=st.sampled_from(["a", "b", "c"]),
        wait_ms=st.sampled_from([0, 0, 0, 3_000]),
    )
    def send(self, topic: str, count: int, key: str, wait_ms: int) -> None:
        """A segment takes some 14."""
        wait_ms = wait_ms if TYPES[topic] is TopicType.MIXED else 0
        for _ in range(count):
            name = f"m{len(self.sent)}"
            message = Outgoing(
                topic=topic,
                rest=name.encode() * (900 // len(name)),
                sys=name.encode(),
                message_id=name,
                message_group=key if topic == "fifo" else "",
                priority=count % 3 if topic == "urgent" else -1,
                lite_topic=LINE if topic == "chat" else "",
                deliver_at_ms=self.now_ms + wait_ms if wait_ms else 0,
            )
            try:
                self.engine.send([message], self.now_ms)
            except StoreFullError:
                break
            self.sent[name] = topic, key if topic == "fifo" else ""
        self.look()

    @rule(
        topics=st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3),
        rounds=st.integers(1, 4),
        step_ms=st.sampled_from([100, 1_000, 3_000, 5_000]),
        by=st.sampled_from([("reader", "other", "ordered", "agents"), ("reader", "other"), ()]),
    )
    def log_grows(self, topics: list[str], rounds: int, step_ms: int, by: tuple[str, ...]) -> None:
        """A segment or two at a time, read by some groups, and then time passes."""
        for _ in range(rounds):
            for topic in topics:
                self.send(topic, 16 // len(topics), "abc"[len(self.sent) % 3], 0)
            self.send("audit", 1, "", 0)
            for group in by:
                self.everything_is_read(group)
            self.time_passes(step_ms, 2)

    @rule(draw=st.data(), count=st.sampled_from([1, 4, 32]), ack=st.booleans())
    def receive(self, draw: st.DataObject, count: int, ack: bool) -> None:
        group = draw.draw(st.sampled_from(list(READERS)))
        got = self.read(group, draw.draw(st.sampled_from(READERS[group])), count)
        if ack:
            self.finish(group, got)
        else:
            self.holding[group] += got

    @rule(
        key=st.sampled_from(["a", "b"]),
        ages_ms=st.sampled_from([(2_000, 1), (2_000, 1), (2_000, 0), (5_000, 3)]),
        free_percent=st.sampled_from([8, 50]),
    )
    def one_is_held_before_others(
        self, key: str, ages_ms: tuple[int, int], free_percent: int
    ) -> None:
        """Of a message group; no receive looks at those behind it until they are old."""
        self.age_of_a_topic_changes("fifo", *ages_ms)
        self.everything_is_read("ordered")
        self.send("fifo", 3, key, 0)
        self.send("fifo", 2, "c", 0)
        self.holding["ordered"] += self.read("ordered", "fifo", 1)
        self.look_at_disk(free_percent)
        self.time_passes(5_000, 5)

    @precondition(lambda self: any(self.holding.values()))
    @rule(draw=st.data())
    def what_is_held_ends(self, draw: st.DataObject) -> None:
        held = [group for group, ones in self.holding.items() if ones]
        group = draw.draw(st.sampled_from(held))
        self.finish(group, [self.holding[group].pop(0)])

    @rule(group=st.sampled_from(list(READERS)))
    def everything_is_read(self, group: str) -> None:
        for topic in READERS[group]:
            while got := self.read(group, topic, 32):
                self.finish(group, got)

    @rule(step_ms=st.sampled_from([100, 1_000, 5_000, 12_000]), steps=st.integers(1, 6))
    def time_passes(self, step_ms: int, steps: int) -> None:
        for _ in range(steps):
            self.engine.checkpoints.take(self.now_ms)
            self.now_ms += step_ms
            self.tick()

    @rule(ahead_ms=st.sampled_from([0, 3_600_000, -3_600_000, 10 * 365 * 86_400_000]))
    def wall_clock_steps(self, ahead_ms: int) -> None:
        """No age ends earlier or later by it."""
        self.engine.wall.ahead_ms = ahead_ms
        self.tick()

    @rule(free_percent=st.sampled_from([8, 50, 50]))
    def look_at_disk(self, free_percent: int) -> None:
        self.low_percent = free_percent
        self.engine.store.disk.look(Space(free_percent, 100))
        self.tick()

    @rule(unread=st.booleans(), steps=st.integers(1, 8))
    def disk_is_nearly_full_for_a_while(self, unread: bool, steps: int) -> None:
        """What goes early, is what everybody has read."""
        for group in list(READERS)[unread:]:
            self.everything_is_read(group)
            self.finish(group, self.holding[group])
            self.holding[group].clear()
        self.look_at_disk(8)
        self.time_passes(1_000, steps)
        self.look_at_disk(50)

    @rule(
        topic=st.sampled_from(list(TYPES)),
        read_ms=st.sampled_from(AGES_MS),
        unread_times=st.sampled_from((UNSET, UNSET, 0, 1, 3)),
    )
    def age_of_a_topic_changes(self, topic: str, read_ms: int, unread_times: int) -> None:
        effective_ms = self.config.store.retention_ms if read_ms == UNSET else read_ms
        unread_ms = unread_times * effective_ms if unread_times > 0 else unread_times
        self.own[topic] = TopicTimes(read_ms, unread_ms)
        self.engine.topics.alter(topic, None, 0, self.now_ms, self.own[topic])
        self.tick()

    @rule(
        retention_ms=st.sampled_from(DEFAULTS_MS),
        times=st.sampled_from(UNREAD_TIMES),
        bytes_max=st.sampled_from(SIZES),
    )
    def ages_for_all_change(self, retention_ms: int, times: int, bytes_max: int) -> None:
        """The configuration is read again."""
        self.config = config(retention_ms, times * retention_ms, bytes_max)
        self.engine.reconfigure(replace(self.engine.config, store=self.config.store))
        self.tick()

    @rule(
        how=st.sampled_from(["stop", "kill", "lose"]),
        back_ms=st.sampled_from([0, 0, 500]),
        away_ms=st.sampled_from([1, 1_000, 12_000]),
    )
    def restart(self, how: str, back_ms: int, away_ms: int) -> None:
        self.tick()
        before = facts(self.engine)
        if how == "stop":
            self.engine.close(self.now_ms)
        else:
            self.engine.abandon()
        if how == "lose":
            lose_checkpoints(self.files)
        self.engine = self.start(back_ms)
        assert facts(self.engine) == before, "I8: another state than before"
        self.engine.store.disk.look(Space(self.low_percent, 100))
        self.now_ms += away_ms
        self.tick()

    @rule()
    def what_has_its_age_goes_soon(self) -> None:
        self.engine.retention.step_cost = 1 << 30
        began_ms = self.now_ms
        while self.now_ms - began_ms < SOON_MS:
            self.now_ms += 500
            self.tick()
        self.engine.retention.step_cost = 3_000
        for (topic, queue_id), first in self.firsts.items():
            read_ms, unread_ms = self.ages(topic)
            place = topic, queue_id, first
            if self.own[topic][0] in (UNSET, 0) or place not in self.kept:
                continue
            old_ms = began_ms - self.kept[place].entered_ms
            if old_ms >= read_ms and (self.unread(place) is None or 0 < unread_ms <= old_ms):
                raise AssertionError("it has its age, and did not go")


TestAges = AgesMachine.TestCase
TestAges.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
