"""What a broker promised its clients, against what it does; it may be killed in between.

Clients write down what they ask and what they are told; every delivery is held against that.
Nothing acknowledged is lost, nothing settled comes back, nothing is delivered early, to two at a
time, or with an attempt number that went backwards. What was asked but never answered may have
happened or not, but only as a whole.

Each fact is judged by what must hold whatever the network did: a lease began when its request was
sent at the earliest, so it lasts at least `invisible_ms` from there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from hashlib import md5
from typing import Final, NamedTuple

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
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Progress:
    """One message in one group, as far as its clients were told."""

    attempt: int = 0  # of the last delivery seen; 0: none
    life: int = 1  # in which it was seen
    broker_ms: int = 0  # when the broker gave it out
    free_ms: int = 0  # nobody else may have it before
    ack: Outcome | None = None  # None: never asked
    forward: Outcome | None = None
    dead: bool = False  # seen among the dead letters


class Delivery(NamedTuple):
    message_id: str
    body: bytes
    attempt: int
    asked_ms: int  # its request was sent
    broker_ms: int  # the broker's answer says so
    at_ms: int  # it was here
    invisible_ms: int


@dataclass(slots=True)
class Ledger:
    """
    Args:
        attempts_max: by group; a message with so many deliveries is dead when the last one ends.
    """

    attempts_max: dict[str, int]
    life: int = 1  # of the broker
    messages: dict[str, Message] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    _progress: dict[tuple[str, str], Progress] = field(default_factory=dict)

    def sending(self, message_id: str, body: bytes, due_ms: int = 0) -> None:
        self.messages[message_id] = Message(due_ms, md5(body).digest())

    def sent(self, message_ids: Iterable[str], outcome: Outcome) -> None:
        for message_id in message_ids:
            self.messages[message_id].outcome = outcome

    def crashed(self) -> None:
        """The broker's life is over. Each group may hold one lease of it that nobody saw."""
        self.life += 1

    def delivered(self, group: str, delivery: Delivery) -> None:
        """A message came to a client of `group`."""
        self._check_message(group, delivery)
        progress = self._of(group, delivery.message_id)
        what = f"{group} {delivery.message_id} attempt {delivery.attempt}"
        if progress.ack is Outcome.DONE:
            self._violated(f"{what}: acknowledged, and delivered again")
        if progress.forward is Outcome.DONE or progress.dead:
            self._violated(f"{what}: dead, and delivered again")
        if delivery.attempt > self.attempts_max[group]:
            self._violated(f"{what}: more than {self.attempts_max[group]} attempts")
        if delivery.broker_ms < progress.broker_ms:  # a later one was quicker to its client
            if delivery.attempt >= progress.attempt:
                self._violated(f"{what}: older than attempt {progress.attempt}")
            return
        if delivery.at_ms < progress.free_ms:
            early_ms = progress.free_ms - delivery.at_ms
            self._violated(f"{what}: delivered {early_ms} ms before the last lease or wait ended")
        crashes = self.life - progress.life
        if not progress.attempt < delivery.attempt <= progress.attempt + 1 + crashes:
            self._violated(f"{what}: follows attempt {progress.attempt}, {crashes} crashes later")
        progress.attempt = delivery.attempt
        progress.life = self.life
        progress.broker_ms = delivery.broker_ms
        progress.free_ms = delivery.asked_ms + delivery.invisible_ms

    def acking(self, group: str, message_id: str) -> None:
        progress = self._of(group, message_id)
        progress.ack = progress.ack or Outcome.UNKNOWN

    def acked(
        self, group: str, message_id: str, attempt: int, *, accepted: bool, at_ms: int
    ) -> None:
        """The answer, here at `at_ms`; refused if the handle of that attempt was no longer good."""
        progress = self._of(group, message_id)
        if accepted:
            progress.ack = Outcome.DONE
            return
        live = attempt == progress.attempt and at_ms < progress.free_ms
        if live and progress.ack is not Outcome.DONE:
            self._violated(f"{group} {message_id}: the handle of a live lease was refused")

    def waiting(self, group: str, message_id: str, asked_ms: int, wait_ms: int) -> None:
        """A nack or a change of the lease was asked for: it may have happened."""
        progress = self._of(group, message_id)
        progress.free_ms = min(progress.free_ms, asked_ms + wait_ms)

    def waits(self, group: str, message_id: str, asked_ms: int, wait_ms: int) -> None:
        """The nack or change was acknowledged."""
        self._of(group, message_id).free_ms = asked_ms + wait_ms

    def forwarding(self, group: str, message_id: str) -> None:
        progress = self._of(group, message_id)
        progress.forward = progress.forward or Outcome.UNKNOWN

    def forwarded(self, group: str, message_id: str) -> None:
        self._of(group, message_id).forward = Outcome.DONE

    def freed(self, group: str, message_id: str) -> None:
        """Its holder left: the lease may end at any moment."""
        self._of(group, message_id).free_ms = 0

    def died(self, group: str, message_id: str, body: bytes) -> None:
        """A dead letter was found in %DLQ%group."""
        message = self.messages.get(message_id)
        if message is None or md5(body).digest() != message.body_md5:
            self._violated(f"{group} {message_id}: a dead letter nobody sent")
        progress = self._of(group, message_id)
        if progress.dead:
            self._violated(f"{group} {message_id}: two dead letters")
        if progress.ack is Outcome.DONE:
            self._violated(f"{group} {message_id}: acknowledged, and a dead letter")
        left = self.attempts_max[group] - progress.attempt - (self.life - progress.life)
        if progress.forward is None and left > 0:
            self._violated(f"{group} {message_id}: dead after {progress.attempt} attempts")
        progress.dead = True

    def check_drained(self, group: str, due_by_ms: int) -> None:
        """All that is due was received and acknowledged, all dead letters read: what is missing?"""
        for message_id in self.stored(due_by_ms):
            progress = self._of(group, message_id)
            if progress.forward is Outcome.DONE and not progress.dead:
                self._violated(f"{group} {message_id}: forwarded, and not among the dead letters")
            elif progress.ack is None and not progress.dead:
                self._violated(
                    f"{group} {message_id}: lost (due {self.messages[message_id].due_ms}, last "
                    f"seen with attempt {progress.attempt} in life {progress.life})"
                )

    def stored(self, due_by_ms: int) -> Iterator[str]:
        """Acknowledged sends that are due by then."""
        for message_id, message in self.messages.items():
            if message.outcome is Outcome.DONE and message.due_ms <= due_by_ms:
                yield message_id

    def summary(self) -> str:
        outcomes = Counter(message.outcome.value for message in self.messages.values())
        acks = Counter(p.ack.value for p in self._progress.values() if p.ack)
        dead = sum(progress.dead for progress in self._progress.values())
        attempts = Counter(progress.attempt for progress in self._progress.values())
        return (
            f"{self.life} lives, sends {dict(outcomes)}, acks {dict(acks)}, {dead} dead letters, "
            f"deliveries by last attempt {dict(sorted(attempts.items()))}"
        )

    def _of(self, group: str, message_id: str) -> Progress:
        return self._progress.setdefault((group, message_id), Progress())

    def _check_message(self, group: str, delivery: Delivery) -> None:
        message = self.messages.get(delivery.message_id)
        what = f"{group} {delivery.message_id}"
        if message is None:
            self._violated(f"{what}: nobody sent it")
        elif message.outcome is Outcome.REFUSED:
            self._violated(f"{what}: its send was refused, yet it came")
        elif md5(delivery.body).digest() != message.body_md5:
            self._violated(f"{what}: its body changed ({len(delivery.body)} bytes)")
        elif delivery.at_ms < message.due_ms:
            self._violated(f"{what}: {message.due_ms - delivery.at_ms} ms early")

    def _violated(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"life {self.life}: {what}")
