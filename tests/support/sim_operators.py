"""Operators of a simulated broker."""

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.engine.state.model import Backoff, PendingFilter, PendingKind, TopicType
from support.sim_desk import ATTEMPTS_MAX, DELAYS_MS, GROUPS, LADDERS_MS, TOPIC, Desk, name_of


class Operators:
    """They change what waits, what is dead and what is configured."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._topics = 0

    def _delayed(self) -> tuple[str, str] | None:
        """Message id and pending id of something that waits for its time."""
        wanted = PendingFilter(kind=PendingKind.DELAYED, topic=TOPIC)
        items, _ = self._desk.engine.pending.page(wanted, 20)
        if not items:
            return None
        item = self._desk.random.choice(items)
        return name_of(item.sys), item.pending_id

    def cancel(self) -> None:
        if (found := self._delayed()) is None:
            return
        topic = self._desk.random.choice(("", TOPIC))  # an operator's, or a producer's recall
        self._desk.ask("cancelling", found[0])
        self._desk.engine.pending.cancel(found[1], self._desk.now_ms, topic=topic)
        self._desk.told("cancelled", found[0])

    def reschedule(self) -> None:
        if (found := self._delayed()) is None:
            return
        due_ms = self._desk.now_ms + self._desk.random.choice((0, *DELAYS_MS))
        self._desk.ask("rescheduling", found[0], due_ms)
        self._desk.engine.pending.postpone(found[1], due_ms, self._desk.now_ms)
        self._desk.told("rescheduled", found[0], due_ms)

    def redrive(self) -> None:
        group = self._desk.random.choice(GROUPS)
        letters = self._desk.letters(group)
        if not letters:
            return
        letter = self._desk.random.choice(letters)
        name = name_of(letter.sys)
        count = sum(name_of(other.sys) == name for other in letters)
        self._desk.ask("redriving", group, name, count)
        self._desk.engine.dead.redrive(group, letter.queue_offset, "", self._desk.now_ms)
        self._desk.told("redriven", group, name)

    def make_topic(self) -> None:
        self._topics += 1
        name = f"made-{self._topics}"
        self._desk.ask("making", name)
        self._desk.engine.topics.create(name, TopicType.NORMAL, 2, self._desk.now_ms)
        self._desk.told("made", name)

    def alter_group(self) -> None:
        group = self._desk.random.choice(GROUPS)
        before = self._desk.engine.catalog.require_group(group).max_attempts
        attempts = self._desk.random.choice((ATTEMPTS_MAX, ATTEMPTS_MAX + 1, ATTEMPTS_MAX + 2))
        ladder = Backoff(kind=BackoffKind.LADDER, delays_ms=self._desk.random.choice(LADDERS_MS))
        self._desk.ask("altering", group, before, attempts)
        self._desk.engine.groups.alter(
            group,
            max_attempts=attempts,
            backoff=ladder,
            clear_backoff=False,
            now_ms=self._desk.now_ms,
        )
        self._desk.told("altered", group, attempts)

    def alter_topic(self) -> None:
        """More queues: message groups keep theirs."""
        topic = self._desk.engine.catalog.topic(TOPIC)
        if topic is not None and topic.queue_count < 4 and not self._desk.random.randrange(4):
            self._desk.engine.topics.alter(TOPIC, None, topic.queue_count + 1, self._desk.now_ms)
            self._desk.told("has_queues", topic.queue_count + 1)
