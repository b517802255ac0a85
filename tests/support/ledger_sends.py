"""What was sent, changed while it waited, and made: the part of the ledger that knows no group."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import md5
from types import MappingProxyType
from typing import Final

VIOLATIONS_MAX: Final = 50


class Outcome(Enum):
    """Of something that was asked of the broker."""

    UNKNOWN = "unknown"  # no answer came
    DONE = "acknowledged"
    REFUSED = "refused"


@dataclass(slots=True)
class Message:
    """`due_ms`: not to be delivered before; 0 when at once."""

    due_ms: int
    body_md5: bytes
    batch: int  # messages sent in one call have one number
    sent_ms: int
    outcome: Outcome = Outcome.UNKNOWN
    cancel: Outcome | None = None  # None: never asked
    key: str = ""  # of its message group, if its place in it is known: it was sent at once
    half: bool = False  # of a transaction
    commit: Outcome | None = None  # None: never asked, as for the rollback
    rollback: Outcome | None = None
    tag: str = ""
    life: int = 1  # of the broker, in which it was sent
    deleted: Outcome | None = None  # its topic; None: nobody asked for that
    topic: str = ""  # which of that name, once its deletion was asked for

    @property
    def visible(self) -> bool:
        """Some group may have it."""
        return not self.half or (self.commit is not None and self.rollback is not Outcome.DONE)


@dataclass(slots=True, kw_only=True)
class Sends:
    """What was sent, changed while it waited, and made."""

    life: int = 1  # of the broker
    messages: dict[str, Message] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    batches: int = 0
    topics: dict[str, Outcome] = field(default_factory=dict)  # that clients asked to be made
    queues: int = 0  # that the topic was told to have, at least
    policies: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Group → the maxima of attempts that may hold now, if they were ever changed."""
    strictest: dict[str, int] = field(default_factory=dict)  # of them, ever

    def sending(
        self,
        messages: Mapping[str, tuple[bytes, int]],
        at_ms: int = 0,
        *,
        half: bool = False,
        keys: Mapping[str, str] = MappingProxyType({}),
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """One call that sends these (message id: body, due time), all or none.

        `keys`: of those that enter a message group at once, in the order of this mapping.
        """
        self.batches += 1
        for message_id, (body, due_ms) in messages.items():
            message = Message(due_ms, md5(body).digest(), self.batches, at_ms, half=half)
            message.key, message.tag = keys.get(message_id, ""), tags.get(message_id, "")
            message.life = self.life
            self.messages[message_id] = message

    def ending(self, message_id: str, *, commit: bool) -> None:
        """A transaction was asked to end; clients never ask for the contrary later."""
        message = self.messages[message_id]
        if commit:
            message.commit = message.commit or Outcome.UNKNOWN
        else:
            message.rollback = message.rollback or Outcome.UNKNOWN

    def ended(self, message_id: str, *, commit: bool) -> None:
        message = self.messages[message_id]
        if commit:
            message.commit = Outcome.DONE
        else:
            message.rollback = Outcome.DONE

    def checked(self, message_id: str) -> None:
        """A producer was asked how the transaction ended."""
        message = self.messages.get(message_id)
        if message is None or not message.half:
            self.violated(7, f"{message_id}: asked about, and no half message")
        elif Outcome.DONE in (message.commit, message.rollback):
            self.violated(7, f"{message_id}: asked about, and its transaction has ended")

    def altering(self, group: str, before: int, attempts: int) -> None:
        """The group's maximum of attempts may become another one."""
        self.policies[group] = (*self.policies.get(group, (before,)), attempts)
        self.strictest[group] = min(attempts, self.strictest.get(group, before))

    def altered(self, group: str, attempts: int) -> None:
        self.policies[group] = (attempts,)

    def check_policy(self, group: str, attempts: int) -> None:
        """The one that was found after a start."""
        if attempts not in self.policies.get(group, (attempts,)):
            self.violated(1, f"{group}: {attempts} attempts, {self.policies[group]} was told")

    def has_queues(self, count: int) -> None:
        """The topic was told to have so many, and never gets fewer, but by being made anew."""
        self.queues = max(self.queues, count)

    def sent(self, message_ids: Iterable[str], outcome: Outcome) -> None:
        for message_id in message_ids:
            self.messages[message_id].outcome = outcome

    def cancelling(self, message_id: str) -> None:
        self.messages[message_id].cancel = Outcome.UNKNOWN

    def cancelled(self, message_id: str) -> None:
        self.messages[message_id].cancel = Outcome.DONE

    def rescheduling(self, message_id: str, due_ms: int) -> None:
        """A delayed message was asked to come at another time."""
        message = self.messages[message_id]
        message.due_ms = min(message.due_ms, due_ms)

    def rescheduled(self, message_id: str, due_ms: int) -> None:
        self.messages[message_id].due_ms = due_ms

    def due_ms(self, message_id: str) -> int:
        message = self.messages.get(message_id)
        return message.due_ms if message is not None else 0

    def enters_at_once(self, message_id: str) -> bool:
        """Its place in a queue is that of its send."""
        message = self.messages.get(message_id)
        return message is None or not (message.due_ms or message.half)

    def making(self, topic: str) -> None:
        self.topics[topic] = Outcome.UNKNOWN

    def made(self, topic: str) -> None:
        self.topics[topic] = Outcome.DONE

    def check_topics(self, found: Iterable[str]) -> None:
        """Every topic whose making was acknowledged is there."""
        made = {name for name, outcome in self.topics.items() if outcome is Outcome.DONE}
        for name in sorted(made.difference(found)):
            self.violated(1, f"topic {name} is lost")

    def stored(self, due_by_ms: int) -> Iterator[str]:
        """Acknowledged sends that are due by then, and that nobody may have cancelled, nor deleted
        with their topic; of transactions those whose commit was acknowledged."""
        for message_id, message in self.messages.items():
            wanted = message.outcome is Outcome.DONE and message.cancel is None
            wanted = wanted and message.deleted is None
            if message.half and message.commit is not Outcome.DONE:
                continue
            if wanted and message.due_ms <= due_by_ms:
                yield message_id

    def violated(self, invariant: int, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"I{invariant} in life {self.life}: {what}")
