"""Topics and groups that are deleted and made anew as something else, under letters that remember.

Two names each, of every type and kind. What is promised is little, whatever else changed: a
redrive that is accepted comes to its group, in this life and in lives that begin with the
checkpoint or with the log alone; one that is refused has done nothing; a message that is done is
told to be done, though a letter may stand where it stood; a pull tells letters that are dead; and
no group has a message twice at a time, though it was set back behind the letter.
"""

from copy import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.outcome.attempts import stored_slices
from latermq_broker.engine.retention.withheld import WithheldMessages
from latermq_broker.engine.state.model import (
    DeadFilter,
    DeadLetter,
    DeadState,
    TopicType,
)
from latermq_broker.engine.views.message_life import LifeState
from latermq_broker.errors import RequestError
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import DROP_TRIM, DropPayload, TrimmedQueue
from property.anew_rules import (
    GROUPS,
    KEYS,
    LEASE_MS,
    READER,
    TOPICS,
    TYPES,
    AnewRules,
    Owed,
    name_of,
    received,
)
from support.engine_facts import facts
from support.engine_rig import do_due
from support.memory_files import MemoryFiles, lose_checkpoints

DRAIN_STEPS_MAX = 200


class AnewMachine(AnewRules):
    """Letters, lives of the broker, and what must hold."""

    # --- dead letters --------------------------------------------------------------------------

    def letters(self, group: str, state: DeadState | None = DeadState.DEAD) -> list[DeadLetter]:
        return list(self.engine.dead.scan(group, DeadFilter(state=state), count_max=1_000).letters)

    @rule(
        draw=st.data(), group=st.sampled_from(GROUPS), to_topic=st.sampled_from(["", "", *TOPICS])
    )
    def redrive(self, draw: st.DataObject, group: str, to_topic: str) -> None:
        """Accepted, it comes; refused, nothing was done."""
        letters = self.letters(group)
        if not letters:
            return
        letter = draw.draw(st.sampled_from(letters))
        before = facts(self.engine)
        end = self.engine.store.log.end
        try:
            self.engine.dead.redrive(group, letter.queue_offset, to_topic, self.rig.now_ms)
        except RequestError:
            assert facts(self.engine) == before
            assert self.engine.store.log.end == end, "I2: refused, and yet it did something"
            return
        self.engine.write()
        if to_topic:
            self.copied.add(name_of(letter.sys))
        else:
            self.owed.add(Owed(group, letter.origin_topic, name_of(letter.sys)))
            self.done.discard(Owed(group, letter.origin_topic, name_of(letter.sys)))
        self.what_is_owed_comes()

    @rule(
        draw=st.data(),
        group=st.sampled_from(GROUPS),
        topic=st.sampled_from(TOPICS),
        types=st.tuples(TYPES, TYPES),
        queues=st.integers(1, 2),
        here=st.booleans(),
    )
    def made_anew_under_letters(
        self,
        draw: st.DataObject,
        group: str,
        topic: str,
        types: tuple[TopicType, TopicType],
        queues: int,
        here: bool,
    ) -> None:
        self.make_topic_anew(topic, types[0], 4)
        self.some_die(group, topic, [*KEYS, *KEYS])
        self.make_topic_anew(topic, types[1], queues)
        self.redrive(draw, group, "")
        if self.owed and here:
            self.what_is_owed_comes_here()

    @rule(
        draw=st.data(),
        group=st.sampled_from(GROUPS),
        topic=st.sampled_from(TOPICS),
        types=st.tuples(TYPES, TYPES),
        queues=st.integers(1, 2),
        dies=st.booleans(),
        here=st.booleans(),
    )
    def made_anew_under_letters_of_one_message(
        self,
        draw: st.DataObject,
        group: str,
        topic: str,
        types: tuple[TopicType, TopicType],
        queues: int,
        dies: bool,
        here: bool,
    ) -> None:
        """The group was set back behind its letter; in the new topic it may die once more, where
        another message may stand at the offset that it had."""
        self.make_topic_anew(topic, types[0], 1)
        self.some_die(group, topic, [*KEYS])
        self.go_on_at(group, topic, {0: 0})
        self.receive(group, topic)
        self.all_fail()
        self.make_topic_anew(topic, types[1], queues)
        self.redrive(draw, group, "")
        self.receive(group, topic)
        if dies:
            self.all_fail()
            self.send(topic, [*KEYS])
        self.redrive(draw, group, "")
        self.set_back(draw, group, topic)
        if self.owed and here:
            self.what_is_owed_comes_here()

    @rule(draw=st.data(), topic=st.sampled_from(TOPICS), whole=st.booleans())
    def expire(self, draw: st.DataObject, topic: str, whole: bool) -> None:
        """What was given stays in hand without its entry; what the broker withholds is kept."""
        known = self.engine.catalog.topic(topic)
        assert known is not None
        state, trimmed = self.engine._state, []
        for queue_id in range(known.queue_count):
            queue = state.queue(known.id, queue_id)
            first = queue.next if whole else draw.draw(st.integers(queue.first, queue.next))
            if first > queue.first:
                trimmed.append(TrimmedQueue(known.id, queue_id, first))
        if trimmed:
            journal = self.engine.dead._journal
            withheld = WithheldMessages(state, journal)
            while withheld.keep(trimmed, self.rig.now_ms) or withheld.look(trimmed):
                """Some of them at a time."""
            kept = [(RecordType.LEASE_ORDERED, lease) for lease in withheld.fresh(trimmed)]
            drop = DropPayload(DROP_TRIM, queues=tuple(trimmed))
            journal.write_group([*kept, (RecordType.DROP, drop)], self.rig.now_ms)
            self.engine.write()

    @rule(
        draw=st.data(),
        group=st.sampled_from(GROUPS),
        topics=st.permutations(TOPICS),
        reads_both=st.booleans(),
    )
    def a_copy_dies_behind_its_entry(
        self, draw: st.DataObject, group: str, topics: list[str], reads_both: bool
    ) -> None:
        """A letter goes to another topic, is given there, expires there, and dies."""
        first, second = topics
        self.some_die(group, first, [*KEYS])
        if reads_both:
            self.receive(group, first)
        self.redrive(draw, group, second)
        self.receive(group, second)
        self.expire(draw, second, True)
        self.all_fail()
        self.redrive(draw, group, "")

    @rule(draw=st.data(), group=st.sampled_from(GROUPS), topic=st.sampled_from(TOPICS))
    def set_back(self, draw: st.DataObject, group: str, topic: str) -> None:
        """It is given again what its letters hold, too, but not of topics that had the name."""
        known = self.engine.catalog.topic(topic)
        assert known is not None
        offsets = {}
        for queue_id in range(known.queue_count):
            ends = self.engine.queues.ends(topic, queue_id)
            offsets[queue_id] = draw.draw(st.integers(ends.earliest_offset, ends.next_offset))
        self.go_on_at(group, topic, offsets)

    def go_on_at(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        known = self.engine.catalog.topic(topic)
        assert known is not None
        for queue_id, offset in offsets.items():
            self.engine.queues.commit(group, topic, queue_id, offset, self.rig.now_ms)
        self.engine.write()
        given = {name for name, epoch in self.sent_to.items() if epoch == known.epoch}
        given |= self.copied
        self.owed = {
            one
            for one in self.owed
            if (one.group, one.topic) != (group, topic) or one.name not in given
        }
        self.done = {one for one in self.done if (one.group, one.topic) != (group, topic)}

    @invariant()
    def no_message_is_in_hand_twice(self) -> None:
        state = self.engine._state
        held = [
            (one.group_id, one.topic_id, self.message_of(one))
            for one in state.leases.deliveries.values()
        ]
        held = [one for one in held if one[2] not in self.copied]
        assert len(held) == len(set(held)), "redriven, and given again"

    def message_of(self, delivery: Delivery) -> str:
        """Name the message of a delivery, for which its id will do; but in a dead-letter topic,
        where several letters may be of one message, each letter is one of its own."""
        state = self.engine._state
        name = name_of(stored_slices(state.read(delivery.position))[1])
        topic = state.catalog.topic_by_id(delivery.topic_id)
        assert topic is not None
        return f"letter {delivery.offset} of {name}" if topic.internal else name

    @rule(draw=st.data(), group=st.sampled_from(GROUPS))
    def drop(self, draw: st.DataObject, group: str) -> None:
        letters = self.letters(group)
        if letters:
            letter = draw.draw(st.sampled_from(letters))
            self.engine.dead.drop(group, [letter.queue_offset], self.rig.now_ms)
            self.engine.write()

    @rule(forward=st.booleans())
    def read_letters(self, forward: bool) -> None:
        """As any topic; what dies there has lives of its own, which a redrive there makes more."""
        topic = f"%DLQ%{GROUPS[0]}"
        if self.engine.catalog.topic(topic) is None:
            return
        known = {one.queue_offset for one in self.letters(GROUPS[0])}
        for one in received(self.engine, READER, topic, self.rig.now_ms):
            lives = [
                letter
                for letter in self.letters(READER, DeadState.REDRIVEN)
                if letter.origin_offset == one.queue_offset
            ]
            again = one.attempt > 1 or bool(lives)
            assert again or one.queue_offset in known, "I3: redriven or dropped, and delivered"
            if not forward:
                self.engine.ack(READER, [one.handle], self.rig.now_ms)
                continue
            self.engine.forward(READER, one.handle, self.rig.now_ms)
            letter = self.letters(READER)[-1]
            assert letter.sys == one.sys
            before = lives[-1].attempts if lives else ()
            assert letter.redrive_count == len(lives), "it forgot its redrives"
            assert letter.attempts[: len(before)] == before, "it forgot its lives"
            assert len(letter.attempts) == len(before) + one.attempt
        self.engine.write()

    @rule(draw=st.data())
    def redrive_what_was_read(self, draw: st.DataObject) -> None:
        letters = self.letters(READER)
        if letters:
            letter = draw.draw(st.sampled_from(letters))
            self.engine.dead.redrive(READER, letter.queue_offset, "", self.rig.now_ms)
            self.engine.write()

    @invariant()
    def pulls_tell_the_letters_that_are_dead(self) -> None:
        for group in GROUPS:
            topic = f"%DLQ%{group}"
            if self.engine.catalog.topic(topic) is not None:
                ends = self.engine.queues.ends(topic, 0)
                rows, _ = self.engine.queues.pull(topic, 0, ends.earliest_offset, 1_000)
                dead = [letter.queue_offset for letter in self.letters(group)]
                assert [row.queue_offset for row in rows] == dead, "it pulls what is no letter"

    @precondition(lambda self: self.done)
    @rule()
    def stories_tell_what_is_done(self) -> None:
        """Though another message may stand where it stood."""
        for done in self.done:
            for found in self.engine.messages.by_id(done.name, done.topic)[0]:
                for told in self.engine.lives.life(found).groups:
                    if told.group == done.group:
                        assert told.state is LifeState.DONE or told.dead_offset >= 0

    # --- lives ---------------------------------------------------------------------------------

    @rule(how=st.sampled_from(["stop", "kill", "kill", "checkpoint"]))
    def restart(self, how: str) -> None:
        self.engine.write()
        before = facts(self.engine)
        if how == "stop":
            self.engine.close(self.rig.now_ms)
            self.rig.engine = self.rig.reopened()
        else:
            if how == "checkpoint":
                self.rig.checkpoint()
            self.rig.crash()
        assert facts(self.engine) == before, "I8: another state than before"

    @precondition(lambda self: self.owed)
    @rule()
    def what_is_owed_comes(self) -> None:
        """To clients that receive and acknowledge all there is: here, and in lives that begin with
        the checkpoint or with the log alone."""
        before = facts(self.engine)
        for lost in (False, True):
            files = self.rig.files
            assert isinstance(files, MemoryFiles)
            spare = MemoryFiles(files.disk.clone())
            if lost:
                lose_checkpoints(spare)
            rig = copy(self.rig)
            rig.files = spare
            engine = rig.reopened()
            assert facts(engine) == before, f"I8: checkpoints lost: {lost}"
            came = self.drained(engine)
            engine.abandon()
            assert self.owed <= came, "a redrive was accepted, and never comes"

    @precondition(lambda self: self.owed)
    @rule()
    def what_is_owed_comes_here(self) -> None:
        came = self.drained(self.engine)
        assert self.owed <= came, "a redrive was accepted, and never comes"
        self.owed.clear()
        self.in_hand.clear()

    def drained(self, engine: Engine) -> set[Owed]:
        """What came, while everything that comes is acknowledged and no letter parks anything."""
        came: set[Owed] = set()
        now_ms = self.rig.now_ms
        for group in GROUPS:
            letters = engine.dead.scan(group, DeadFilter(), count_max=1_000).letters
            engine.dead.drop(group, [letter.queue_offset for letter in letters], now_ms)
        for _ in range(DRAIN_STEPS_MAX):
            found = False
            for group in GROUPS:
                for topic in TOPICS:
                    for one in received(engine, group, topic, now_ms):
                        found = True
                        came.add(Owed(group, topic, name_of(one.sys)))
                        engine.ack(group, [one.handle], now_ms)
            if not found and now_ms > self.rig.now_ms + 10 * LEASE_MS:
                break
            now_ms += 0 if found else 2 * LEASE_MS
            do_due(engine, now_ms)
        if engine is self.engine:
            self.rig.now_ms = now_ms
        engine.write()
        return came


TestAnew = AnewMachine.TestCase
TestAnew.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
