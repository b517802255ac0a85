"""What a broker promised, against what it does and what comes back; it may die in between.

Clients write down what they ask and what they are told; every delivery, and everything found after
a recovery, is held against that. What was asked but never answered may have happened or not, but
only as a whole. Each violation begins with the invariant it breaks:

    I1  every acknowledged send is there exactly once, bytes identical
    I2  a refused send never appears; one of unknown outcome appears whole or not at all
    I3  what a group acknowledged is not delivered to it again; a death is one dead letter
    I4  attempt = earlier leases + 1, and at most the group's maximum
    I5  nothing before its due time, or before the last lease or wait of its group has ended
    I6  queue offsets are dense, order in a queue is log order; a group that keeps the order has of
        a message group what was sent before, or has settled it
    I7  a half message is not seen before its commit, nor after its rollback; a committed one is
        there, an open one is open

I8 to I12 are of whole directories: `support/audit.py` checks them.
Each fact is judged by what must hold whatever the network did: a lease began when its request was
sent at the earliest, so it lasts at least `invisible_ms` from there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import md5
from types import MappingProxyType
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
    batch: int  # messages sent in one call have one number
    sent_ms: int
    outcome: Outcome = Outcome.UNKNOWN
    cancel: Outcome | None = None  # None: never asked
    key: str = ""  # of its message group, if its place in it is known: it was sent at once
    half: bool = False  # of a transaction
    commit: Outcome | None = None  # None: never asked, as for the rollback
    rollback: Outcome | None = None

    @property
    def visible(self) -> bool:
        """Some group may have it."""
        return not self.half or (self.commit is not None and self.rollback is not Outcome.DONE)


@dataclass(slots=True)
class Progress:
    """One message in one group, as far as its clients were told."""

    attempt: int = 0  # of the last delivery seen; 0: none
    unseen: int = 0  # leases since then that a crash may have hidden
    life: int = 1  # in which it was seen
    broker_ms: int = 0  # when the broker gave it out
    free_ms: int = 0  # nobody else may have it before
    ack: Outcome | None = None  # None: never asked
    forward: Outcome | None = None
    redrive: Outcome | None = None  # of its dead letter; one that is over becomes None again
    dead: bool = False  # seen among the dead letters
    reply: int = 0  # in which it came; 0: not told


class Delivery(NamedTuple):
    message_id: str
    body: bytes
    attempt: int
    asked_ms: int  # its request was sent
    broker_ms: int  # the broker's answer says so
    at_ms: int  # it was here
    invisible_ms: int
    reply: int = 0  # those of one reply have one number, if the order is to be checked


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
    ) -> None:
        """One call that sends these (message id: body, due time), all or none.

        `keys`: of those that enter a message group at once, in the order of this mapping.
        """
        self.batches += 1
        for message_id, (body, due_ms) in messages.items():
            message = Message(due_ms, md5(body).digest(), self.batches, at_ms, half=half)
            message.key = keys.get(message_id, "")
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
        """The topic was told to have so many, and never gets fewer."""
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
        """Acknowledged sends that are due by then, and that nobody may have cancelled; of
        transactions those whose commit was acknowledged."""
        for message_id, message in self.messages.items():
            wanted = message.outcome is Outcome.DONE and message.cancel is None
            if message.half and message.commit is not Outcome.DONE:
                continue
            if wanted and message.due_ms <= due_by_ms:
                yield message_id

    def violated(self, invariant: int, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"I{invariant} in life {self.life}: {what}")


@dataclass(slots=True)
class Ledger(Sends):
    """
    Args:
        attempts_max: by group; a message with so many deliveries is dead when the last one ends.
        retention_ms: what no client has received for so long may be gone; 0: never.
    """

    attempts_max: dict[str, int]
    retention_ms: int = 0
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)

    def clone(self) -> "Ledger":
        return replace(
            self,
            messages={key: replace(one) for key, one in self.messages.items()},
            violations=list(self.violations),
            progress={key: replace(one) for key, one in self.progress.items()},
            topics=dict(self.topics),
            policies=dict(self.policies),
            strictest=dict(self.strictest),
        )

    # --- the broker's lives --------------------------------------------------------------------

    def crashed(self) -> None:
        """The broker's life is over. Each group may hold one lease of it that nobody saw."""
        self.life += 1

    def unseen(self, group: str, message_id: str) -> None:
        """A delivery may have been forgotten by a loss of power, with all that followed."""
        self.of(group, message_id).unseen += 1

    # --- deliveries ----------------------------------------------------------------------------

    def delivered(self, group: str, delivery: Delivery) -> None:
        """A message came to a client of `group`."""
        self._check_message(group, delivery)
        progress = self.of(group, delivery.message_id)
        what = f"{group} {delivery.message_id} attempt {delivery.attempt}"
        if progress.redrive is not None and delivery.attempt <= 1 + self._hidden(progress):
            progress.attempt = 0  # it began anew
        progress.redrive = None
        if progress.ack is Outcome.DONE:
            self.violated(3, f"{what}: acknowledged, and delivered again")
        if progress.forward is Outcome.DONE or progress.dead:
            self.violated(3, f"{what}: dead, and delivered again")
        most = max(self.policies.get(group, (self.attempts_max[group],)))
        if delivery.attempt > most:
            self.violated(4, f"{what}: more than {most} attempts")
        if delivery.broker_ms < progress.broker_ms:  # a later one was quicker to its client
            if delivery.attempt >= progress.attempt:
                self.violated(4, f"{what}: older than attempt {progress.attempt}")
            return
        if delivery.at_ms < progress.free_ms:
            early_ms = progress.free_ms - delivery.at_ms
            self.violated(5, f"{what}: {early_ms} ms before the last lease or wait ended")
        hidden = self._hidden(progress)
        if not progress.attempt < delivery.attempt <= progress.attempt + 1 + hidden:
            self.violated(4, f"{what}: follows attempt {progress.attempt}, {hidden} hidden")
        if delivery.reply:
            check_order(self, group, delivery)
        progress.reply = delivery.reply
        progress.attempt = delivery.attempt
        progress.unseen = 0
        progress.life = self.life
        progress.broker_ms = delivery.broker_ms
        progress.free_ms = delivery.asked_ms + delivery.invisible_ms

    def acking(self, group: str, message_id: str) -> None:
        progress = self.of(group, message_id)
        progress.ack = progress.ack or Outcome.UNKNOWN

    def acked(
        self, group: str, message_id: str, attempt: int, *, accepted: bool, at_ms: int
    ) -> None:
        """The answer, here at `at_ms`; refused if the handle of that attempt was no longer good."""
        progress = self.of(group, message_id)
        if accepted:  # of a message that is dead, or was, it says nothing: it is settled
            if progress.forward is None and progress.redrive is None:
                progress.ack = Outcome.DONE
            return
        live = attempt == progress.attempt and at_ms < progress.free_ms and not progress.unseen
        if live and progress.ack is not Outcome.DONE:
            self.violated(3, f"{group} {message_id}: the handle of a live lease was refused")

    def waiting(self, group: str, message_id: str, asked_ms: int, wait_ms: int) -> None:
        """A nack or a change of the lease was asked for: it may have happened."""
        progress = self.of(group, message_id)
        progress.free_ms = min(progress.free_ms, asked_ms + wait_ms)

    def waits(self, group: str, message_id: str, asked_ms: int, wait_ms: int) -> None:
        """The nack or change was acknowledged."""
        self.of(group, message_id).free_ms = asked_ms + wait_ms

    def freed(self, group: str, message_id: str) -> None:
        """Its holder left: the lease may end at any moment."""
        self.of(group, message_id).free_ms = 0

    # --- deaths --------------------------------------------------------------------------------

    def suspending(self, group: str, message_id: str) -> None:
        """Its attempt may not have counted."""
        progress = self.of(group, message_id)
        progress.attempt = max(0, progress.attempt - 1)
        progress.unseen += 1

    def forwarding(self, group: str, message_id: str) -> None:
        progress = self.of(group, message_id)
        progress.forward = progress.forward or Outcome.UNKNOWN

    def forwarded(self, group: str, message_id: str) -> None:
        """Of what is settled already it says nothing: repeats are answered alike."""
        progress = self.of(group, message_id)
        progress.forward = None if progress.ack is Outcome.DONE else Outcome.DONE

    def redriving(self, group: str, message_id: str) -> None:
        """A dead letter may begin again with attempt 1; a crash may forget that, and its death."""
        progress = self.of(group, message_id)
        progress.redrive, progress.dead = Outcome.UNKNOWN, False
        progress.ack = progress.forward = None
        progress.free_ms = 0

    def redriven(self, group: str, message_id: str) -> None:
        progress = self.of(group, message_id)
        progress.redrive, progress.life = Outcome.DONE, self.life
        progress.attempt = progress.unseen = 0

    def died(self, group: str, message_id: str, body: bytes) -> None:
        """A dead letter, not redriven, was found in %DLQ%group."""
        message = self.messages.get(message_id)
        if message is None or md5(body).digest() != message.body_md5:
            self.violated(1, f"{group} {message_id}: a dead letter nobody sent")
        progress = self.of(group, message_id)
        if progress.dead:
            self.violated(3, f"{group} {message_id}: two dead letters")
        if progress.ack is Outcome.DONE:
            self.violated(3, f"{group} {message_id}: acknowledged, and a dead letter")
        if (
            progress.forward is None
            and progress.redrive is None
            and not may_be_spent(self, group, progress)
        ):
            self.violated(4, f"{group} {message_id}: dead after {progress.attempt} attempts")
        progress.dead = True

    # --- in the end ----------------------------------------------------------------------------

    def check_drained(self, group: str, due_by_ms: int, gone: frozenset[str] = frozenset()) -> None:
        """All that is due was received and acknowledged, all dead letters read: what is missing?

        `gone`: what retention may have taken before this group saw it.
        """
        for message_id in self.stored(due_by_ms):
            progress = self.of(group, message_id)
            if progress.forward is Outcome.DONE and not progress.dead:
                self.violated(1, f"{group} {message_id}: forwarded, and not among the dead letters")
            elif progress.ack is None and not progress.dead:
                if message_id in gone and not progress.attempt:
                    continue
                self.violated(
                    1,
                    f"{group} {message_id}: lost (due {self.messages[message_id].due_ms}, last "
                    f"seen with attempt {progress.attempt} in life {progress.life})",
                )

    def summary(self) -> str:
        outcomes = Counter(message.outcome.value for message in self.messages.values())
        acks = Counter(p.ack.value for p in self.progress.values() if p.ack)
        dead = sum(progress.dead for progress in self.progress.values())
        attempts = Counter(progress.attempt for progress in self.progress.values())
        return (
            f"{self.life} lives, sends {dict(outcomes)}, acks {dict(acks)}, {dead} dead letters, "
            f"deliveries by last attempt {dict(sorted(attempts.items()))}"
        )

    def of(self, group: str, message_id: str) -> Progress:
        return self.progress.setdefault((group, message_id), Progress())

    def _hidden(self, progress: Progress) -> int:
        return self.life - progress.life + progress.unseen

    def _check_message(self, group: str, delivery: Delivery) -> None:
        message = self.messages.get(delivery.message_id)
        what = f"{group} {delivery.message_id}"
        if message is None:
            self.violated(1, f"{what}: nobody sent it")
        elif message.outcome is Outcome.REFUSED:
            self.violated(2, f"{what}: its send was refused, yet it came")
        elif not message.visible:
            self.violated(7, f"{what}: its transaction was not committed, yet it came")
        elif md5(delivery.body).digest() != message.body_md5:
            self.violated(1, f"{what}: its body changed ({len(delivery.body)} bytes)")
        elif delivery.at_ms < message.due_ms:
            self.violated(5, f"{what}: {message.due_ms - delivery.at_ms} ms early")
        elif message.cancel is Outcome.DONE:
            self.violated(3, f"{what}: cancelled, yet it came")


def check_order(ledger: Ledger, group: str, delivery: Delivery) -> None:
    """I6: what was promised of the message group before this one is settled, or in its reply."""
    mine = ledger.messages.get(delivery.message_id)
    if mine is None or not mine.key:
        return
    for message_id, message in ledger.messages.items():
        if message_id == delivery.message_id:
            return  # what follows was sent later
        if message.key != mine.key or message.outcome is not Outcome.DONE:
            continue
        before = ledger.of(group, message_id)
        settled = before.ack or before.forward or before.redrive or before.dead
        if settled or before.reply == delivery.reply or may_be_spent(ledger, group, before):
            continue
        if ledger.retention_ms and delivery.at_ms - message.sent_ms >= ledger.retention_ms:
            continue  # it may have expired
        ledger.violated(6, f"{group} {delivery.message_id}: before {message_id} of {mine.key}")


def may_be_spent(ledger: Ledger, group: str, progress: Progress) -> bool:
    """It may have had all its attempts, under some policy there was."""
    least = ledger.strictest.get(group, ledger.attempts_max[group])
    return progress.attempt + ledger._hidden(progress) >= least
