"""Topics, groups and schedules that an application needs, beside those that its broker has."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from latermq._values import arguments
from latermq._values.settings import REQUEST_TIMEOUT
from latermq._worker.schedules import Schedule, prune_schedules, put_schedule
from latermq.admin import AsyncAdmin, backoff_message, read_backoff
from latermq.backoff import FIFO_RETRY, Backoff
from latermq.errors import (
    ForbiddenError,
    GroupNotFoundError,
    TopicNotFoundError,
    UnauthorizedError,
    UnsupportedError,
)
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from latermq_text.attempts import UNLIMITED, UNLIMITED_WORD, allowed
from latermq_text.backoffs import ATTEMPTS_MAX, QUEUES_MAX

log = logging.getLogger("latermq.worker")

Attempts: TypeAlias = int | Literal["unlimited"]
TopicKind: TypeAlias = Literal[
    "mixed", "normal", "fifo", "delay", "transaction", "lite", "priority"
]
HINT: Final = "the broker's word holds; `latermq worker --declare` has it be the code's"
SOON_S: Final = REQUEST_TIMEOUT.total_seconds()  # for an answer, whatever it is
# Who may not look, or asks a broker that cannot tell, works with what there is.
NOT_TOLD: Final = (ForbiddenError, UnauthorizedError, UnsupportedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that is needed; None: as the broker has it, or makes it."""

    name: str
    kind: TopicKind | None = None
    queues: int | None = None

    def __post_init__(self) -> None:
        arguments.name_of("topic", self.name)
        if self.kind is not None and self.kind not in get_args(TopicKind):
            raise ValueError(f"kind must be one of {', '.join(get_args(TopicKind))}: {self.kind}")
        if self.queues is not None:
            arguments.count("queues", self.queues)
            arguments.at_most("queues", self.queues, QUEUES_MAX)

    def differences(self, there: topic_pb2.Topic) -> list[str]:
        """Say what the broker has otherwise."""
        kind = topic_pb2.TopicType.Name(there.type).lower()
        return _differences(("kind", self.kind, kind), ("queues", self.queues, there.queue_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group that is needed; None: as the broker has it, or makes it.

    Fields:
        usual: where it is FIFO, it is made with what the broker gives every other group.
    """

    name: str
    retry: Backoff | None = None
    max_attempts: int | None = None
    fifo: bool | None = None
    usual: bool = False

    def __post_init__(self) -> None:
        arguments.name_of("group", self.name)
        if self.max_attempts is not None:
            arguments.count("max_attempts", self.max_attempts)
            arguments.at_most("max_attempts", self.max_attempts, ATTEMPTS_MAX)

    @property
    def says_nothing(self) -> bool:
        return self == Group(name=self.name)

    def made(self) -> group_pb2.Group:
        """Return what the broker is to make of it; a FIFO group as RocketMQ 5 has them, or as is
        `usual` here."""
        message = group_pb2.Group(
            name=self.name, max_attempts=self.max_attempts or 0, fifo=bool(self.fifo)
        )
        retry = self.retry
        if self.fifo and not self.usual:
            message.max_attempts = self.max_attempts or UNLIMITED
            retry = retry or FIFO_RETRY
        if retry is not None:
            message.backoff.CopyFrom(backoff_message(retry))
        return message

    def differences(self, there: group_pb2.Group) -> list[str]:
        """Say what the broker has otherwise."""
        ladder = read_backoff(there.backoff) or "the broker's ladder"
        wanted = self.max_attempts and allowed(self.max_attempts)
        return _differences(
            ("retry", self.retry and str(self.retry), str(ladder)),
            ("max_attempts", wanted, allowed(there.max_attempts)),
            ("fifo", self.fifo, there.fifo),
        )

    def together(self, other: "Group") -> "Group":
        """Return what both say.

        Raises:
            ValueError: they contradict each other.
        """
        both = replace(self, usual=self.usual or other.usual)
        for name in ("retry", "max_attempts", "fifo"):
            mine, given = getattr(self, name), getattr(other, name)
            if None not in (mine, given) and mine != given:
                raise ValueError(f"group {self.name}: {name} is declared as {mine} and as {given}")
            both = replace(both, **{name: given if mine is None else mine})
        return both


@dataclass(slots=True)
class Declared:
    """All that an application declares, by name."""

    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def add_topic(self, topic: Topic) -> None:
        """Raises ValueError: it is declared already, otherwise."""
        if self.topics.setdefault(topic.name, topic) != topic:
            raise ValueError(f"topic {topic.name} is declared twice, and not alike")

    def add_group(self, group: Group) -> None:
        """Add to what is said of the group. Raises ValueError: it contradicts it."""
        known = self.groups.get(group.name)
        self.groups[group.name] = group if known is None else known.together(group)

    def check_schedule(self, name: str) -> None:
        """Raises ValueError: there is one of that name."""
        if name in self.schedules:
            raise ValueError(f"schedule {name} is declared twice: give one a name=")

    def add_schedule(self, schedule: Schedule) -> None:
        """Raises ValueError: there is one of that name."""
        self.check_schedule(schedule.name)
        self.schedules[schedule.name] = schedule

    async def prepare(self, admin: AsyncAdmin, app: str, *, alter: bool) -> None:
        """Make what is missing; alter what differs, or warn of it. Tells the log what was done.

        Args:
            app: whose code has it.
        Raises:
            UnavailableError: no broker answers; soon, though every other call may take longer.
            RequestError: the broker refuses; where nothing is to be altered it may.
        """
        await admin.ask(admin.messaging.Heartbeat, service_pb2.HeartbeatRequest(), timeout_s=SOON_S)
        try:
            for line in await self._each(admin, alter=alter):
                log.info("%s", line)
        except NOT_TOLD as error:
            if alter:
                raise
            log.info("topics and groups are not compared with the code's: %s", error)
        for schedule in self.schedules.values():
            try:
                done, differs = await put_schedule(admin, schedule, app, alter=alter)
            except NOT_TOLD as error:
                if alter:
                    raise
                log.warning("schedule %s may not be there: %s", schedule.name, error)
                continue
            if done:
                log.info("%s", done)
            if differs:
                log.warning("%s; %s", differs, HINT)

    async def put(self, admin: AsyncAdmin, app: str, *, prune: bool) -> list[str]:
        """Make what is missing, alter what differs; say what was done. Raises what a call does.

        Args:
            prune: remove schedules that the app declared before and does no more.
        """
        done = await self._each(admin, alter=True)
        for schedule in self.schedules.values():
            done.append((await put_schedule(admin, schedule, app, alter=True))[0])
        if prune:
            done += await prune_schedules(admin, app, self.schedules)
        return [line for line in done if line]

    async def _each(self, admin: AsyncAdmin, *, alter: bool) -> list[str]:
        done: list[str] = []
        for topic in self.topics.values():
            done += await _topic(admin, topic, alter=alter)
        for group in self.groups.values():
            if not group.says_nothing:
                done += await _group(admin, group, alter=alter)
        return done


async def _topic(admin: AsyncAdmin, topic: Topic, *, alter: bool) -> list[str]:
    about: dict[str, Any] = {"name": topic.name, "queue_count": topic.queues or 0}
    if topic.kind is not None:
        about["type"] = topic.kind.upper()
    try:
        present = await admin.call(
            admin.topics.GetTopic, topic_pb2.GetTopicRequest(name=topic.name)
        )
    except TopicNotFoundError:
        await admin.call(admin.topics.CreateTopic, topic_pb2.CreateTopicRequest(**about))
        return [f"topic {topic.name} made"]
    differences = topic.differences(present.topic)
    if differences and alter:
        await admin.call(admin.topics.AlterTopic, topic_pb2.AlterTopicRequest(**about))
    return _said(f"topic {topic.name}", differences, alter=alter)


async def _group(admin: AsyncAdmin, group: Group, *, alter: bool) -> list[str]:
    try:
        present = await admin.call(
            admin.groups.GetGroup, group_pb2.GetGroupRequest(name=group.name)
        )
    except GroupNotFoundError:
        await admin.call(admin.groups.CreateGroup, group_pb2.CreateGroupRequest(group=group.made()))
        return [f"group {group.name} made"]
    differences = group.differences(present.group)
    if differences and alter:
        if group.fifo not in (None, present.group.fifo):
            raise ValueError(f"group {group.name}: fifo cannot be altered; delete the group first")
        request = group_pb2.AlterGroupRequest(name=group.name, max_attempts=group.max_attempts or 0)
        if group.retry is not None:
            request.backoff.CopyFrom(backoff_message(group.retry))
        await admin.call(admin.groups.AlterGroup, request)
    return _said(f"group {group.name}", differences, alter=alter)


def attempts_of(max_attempts: Attempts | None) -> int | None:
    """Return the number that a broker is told. Raises TypeError, ValueError: none."""
    if max_attempts == UNLIMITED_WORD:
        return UNLIMITED
    if isinstance(max_attempts, str):
        raise ValueError(f'max_attempts is a number or "{UNLIMITED_WORD}", not {max_attempts!r}')
    return max_attempts


def _differences(*rows: tuple[str, object, object]) -> list[str]:
    return [
        f"{name}: {there} at the broker, {wanted} in the code"
        for name, wanted, there in rows
        if wanted is not None and wanted != there
    ]


def _said(what: str, differences: Iterable[str], *, alter: bool) -> list[str]:
    listed = "; ".join(differences)
    if not listed:
        return []
    if alter:
        return [f"{what} altered: {listed}"]
    log.warning("%s: %s; %s", what, listed, HINT)
    return []
