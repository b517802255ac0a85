"""Operators of a simulated broker who delete what there is, and make it anew as something else."""

from typing import Final

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.engine.state.model import Backoff, TopicType
from support.sim_desk import (
    ATTEMPTS_MAX,
    GROUP,
    GROUPS,
    LADDERS_MS,
    ORDERED,
    TOPIC,
    UNWANTED_MS,
    Desk,
)
from support.sim_operators import Operators

TYPES: Final = (
    *[TopicType.MIXED] * 4, TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY, TopicType.PRIORITY,
    *[TopicType.LITE] * 2,
)  # fmt: skip
KINDS: Final = {GROUP: ("plain", "plain", "lite"), ORDERED: ("ordered", "ordered", "lite")}


class Makers:
    """They delete and make anew; what waits among the dead letters, they may redrive at once."""

    def __init__(self, desk: Desk, operators: Operators) -> None:
        self._desk = desk
        self._operators = operators

    def make_topic(self) -> None:
        """As what it was, as another, or not at all: then it is made on its first use."""
        desk, engine, random = self._desk, self._desk.engine, self._desk.random
        if random.randrange(2):
            return
        type = random.choice(TYPES)
        topic = engine.catalog.topic(TOPIC)
        if topic is not None:
            if not random.randrange(3):
                type = topic.type
            with desk.withdrawing(lambda _: True):
                letters = {group: desk.letter_names(group) for group in GROUPS}
                desk.ask("deleting_topic", topic.epoch, letters)
                engine.topics.delete(TOPIC, desk.now_ms)
                desk.told("deleted_topic", topic.epoch)
        if not random.randrange(5):
            return
        queues = 1 if type is TopicType.LITE else random.randint(1, 3)
        made = engine.topics.create(TOPIC, type, queues, desk.now_ms)
        desk.told("made_topic", made.epoch)
        desk.told("has_queues", queues)
        for _ in range(random.choice((0, 1, 4))):
            desk.attempt(self._operators.redrive)

    def make_group(self) -> None:
        if not self._desk.random.randrange(2):
            group = self._desk.random.choice(GROUPS)
            self._make_group(group, self._desk.random.choice(KINDS[group]))

    def mend_groups(self) -> None:
        """A crash came between the end of one and its making."""
        for group in GROUPS:
            if self._desk.engine.catalog.group(group) is None:
                self._make_group(group, KINDS[group][0])

    def _make_group(self, group: str, kind: str) -> None:
        desk, engine = self._desk, self._desk.engine
        owner = engine.catalog.group(group)
        wait_ms = 0 if kind == "plain" else UNWANTED_MS
        with desk.withdrawing(lambda held: held.group == group):
            before = ATTEMPTS_MAX if owner is None else owner.max_attempts
            desk.ask("altering", group, before, ATTEMPTS_MAX)
            desk.ask("remaking_group", group, kind, desk.letter_names(group), wait_ms)
            if owner is not None:
                engine.groups.delete(group, desk.now_ms)
            engine.groups.create(
                group,
                fifo=kind != "plain",
                max_attempts=ATTEMPTS_MAX,
                backoff=Backoff(kind=BackoffKind.LADDER, delays_ms=LADDERS_MS[0]),
                lite_parent=TOPIC if kind == "lite" else "",
                now_ms=desk.now_ms,
            )
            desk.told("remade_group", group, kind, wait_ms)
            desk.told("altered", group, ATTEMPTS_MAX)
