"""What moves a group on a queue without a delivery: UpdateOffset, and filters that change; and what
those who ask are told. Each rule asks the engine and tells the model."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from latermq_broker.engine.state.model import DeadState
from latermq_broker.engine.views.message_life import GroupLife, LifeState
from latermq_broker.errors import IndexRebuildingError
from support.engine_bench import TOPIC, Bench
from support.group_model import Group, Message, Where

NAMES = st.sampled_from(["everything", "only-a", "skip", "park"])
TOLD = {
    "leased": LifeState.LEASED,
    "backoff": LifeState.BACKOFF,
    "ready": LifeState.RETRY,
    "done": LifeState.DONE,
    "passed": LifeState.DONE,
    "dead": LifeState.DEAD,
}


class ProgressRules(Bench):
    @rule(name=NAMES, tags=st.sampled_from([None, None, frozenset("a"), frozenset("b")]))
    def change_filter(self, name: str, tags: frozenset[str] | None) -> None:
        """Its clients subscribe with other tags from now on."""
        self.model.groups[name].tags = tags

    @rule(name=NAMES, draw=st.data(), how=st.sampled_from(["same", "same", "back", "ahead"]))
    def commit_offset(self, name: str, draw: st.DataObject, how: str) -> None:
        """To where it is, which is to change nothing; before, or behind."""
        group, topic = self.model.groups[name], self.engine.catalog.topic(TOPIC)
        assert topic is not None
        queue_id = draw.draw(st.integers(0, topic.queue_count - 1))
        ends = self.engine.queues.ends(TOPIC, queue_id)
        told = self.engine.queues.committed(name, TOPIC, queue_id)
        if told is not None:
            self.nothing_is_left_behind(group, queue_id, told)
        if told is None and how == "same":
            return  # nothing is told that could be repeated
        at = self.cursors(group)[queue_id] if told is None else told
        to = draw.draw(
            {
                "same": st.just(at),
                "back": st.integers(ends.earliest_offset, at),
                "ahead": st.integers(at, ends.next_offset),
            }[how]
        )
        self.engine.queues.commit(name, TOPIC, queue_id, to, self.now_ms)
        if to >= at:
            group.skip(queue_id, to)
            return
        void = group.rewind(queue_id, to)
        assert None not in self.engine.ack(name, void, self.now_ms), "two may hold one message"

    def nothing_is_left_behind(self, group: Group, queue_id: int, told: int) -> None:
        """What GetOffset tells is the oldest that the group was not given."""
        for held in group.in_state("fresh"):
            if held.message.place[0] == queue_id and not held.maybe and group.wants(held):
                assert held.message.place[1] >= told, "GetOffset passes what was not given"

    @precondition(lambda self: self.model.at(Where.QUEUE))
    @rule(draw=st.data())
    def tell_story(self, draw: st.DataObject) -> None:
        """What `latermq message show` tells of a message is what each group has of it."""
        message = draw.draw(st.sampled_from(self.model.at(Where.QUEUE)))
        try:
            found, _ = self.engine.messages.by_id(message.name, TOPIC)
            lives = [self.engine.lives.life(one) for one in found]
        except IndexRebuildingError:
            return
        if not lives:
            return  # it is gone with its segment
        [life] = lives
        if life.expired:
            return
        assert (life.queue_id, life.queue_offset) in (message.place, (-1, -1))
        for told in life.groups if life.queue_id >= 0 else ():
            self.check_story(message, told)

    def check_story(self, message: Message, told: GroupLife) -> None:
        held = self.model.groups[told.group].held[message.name]
        if told.state is LifeState.UNKNOWN or held.maybe or held.state == "expired":
            return
        if held.unsure:  # a lease that a restart may have ended: nobody has looked since
            return
        if held.state in ("leased", "backoff", "ready"):
            came = held.letter.left if held.letter is not None else ""
            redriven = told.dead_state is DeadState.REDRIVEN
            assert redriven == (came == "redriven"), "its story tells of another life"
        if held.state == "fresh":
            assert told.state in (LifeState.READY, LifeState.HELD)
        elif held.state == "ready" and not held.attempt:
            assert told.state in (LifeState.RETRY, LifeState.HELD)
        elif told.state is LifeState.DEAD and told.dead_state is not DeadState.DEAD:
            assert held.letter is not None
            assert held.letter.left
        else:
            assert told.state is TOLD[held.state], f"its story says {told.state.name}"
            assert held.state not in ("leased", "backoff", "ready") or told.attempt == held.attempt

    @precondition(lambda self: any(one.deadline_ms > self.now_ms for one in self.over))
    @rule(draw=st.data())
    def repeat_what_is_over(self, draw: st.DataObject) -> None:
        """A client that got no answer asks again, inside its lease: whatever happened meanwhile."""
        self.over = [one for one in self.over if one.deadline_ms > self.now_ms]
        over = draw.draw(st.sampled_from(self.over))
        if over.forwarded:
            self.engine.forward(over.group, over.handle, self.now_ms)
        else:
            assert self.engine.ack(over.group, [over.handle], self.now_ms) == [None]
