"""What a broker promised, against what it does and what comes back; it may die in between.

Clients write down what they ask and what they are told; every delivery, and everything found after
a recovery, is held against that. What was asked but never answered may have happened or not, but
only as a whole. Each violation begins with the invariant it breaks:

    I1  every acknowledged send is there exactly once, bytes identical
    I2  a refused send never appears; one of unknown outcome appears whole or not at all
    I3  what a group acknowledged, skipped or does not want is not delivered to it; a death is one
        dead letter
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
from dataclasses import dataclass, replace
from hashlib import md5
from typing import NamedTuple

from support.ledger_anew import Anew
from support.ledger_sends import Outcome


class Delivery(NamedTuple):
    message_id: str
    body: bytes
    attempt: int
    handle: str
    asked_ms: int  # its request was sent
    broker_ms: int  # the broker's answer says so
    at_ms: int  # it was here
    invisible_ms: int
    reply: int = 0  # those of one reply have one number, if the order is to be checked
    renewed_ms: int = 0  # for so long the broker renews the lease


@dataclass(slots=True)
class Ledger(Anew):
    """
    Args:
        attempts_max: by group; a message with so many deliveries is dead when the last one ends.
        retention_ms: what no client has received for so long may be gone; 0: never.
    """

    attempts_max: dict[str, int]
    retention_ms: int = 0

    def clone(self) -> "Ledger":
        return replace(
            self,
            messages={key: replace(one) for key, one in self.messages.items()},
            violations=list(self.violations),
            progress={key: replace(one) for key, one in self.progress.items()},
            topics=dict(self.topics),
            policies=dict(self.policies),
            strictest=dict(self.strictest),
            filters=dict(self.filters),
            cut_off=list(self.cut_off),
            unwanted_ms=dict(self.unwanted_ms),
            doomed=dict(self.doomed),
            deleted_epochs=set(self.deleted_epochs),
            kinds=dict(self.kinds),
        )

    # --- the broker's lives --------------------------------------------------------------------

    def crashed(self) -> None:
        """The broker's life is over. Each group may hold one lease of it that nobody saw."""
        self.cut_off.append(self.life)
        self.life += 1

    def stopped(self) -> None:
        """It is over in order: every answer went out, and the renewal of leases goes on."""
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
        hidden = self._hidden(delivery.message_id, progress)
        anew = progress.redrive or progress.rewind or progress.again
        if anew and delivery.attempt <= 1 + hidden:
            progress.attempt = 0  # it began anew
        if progress.skip is Outcome.DONE:
            self.violated(3, f"{what}: skipped, and delivered")
        if not self.wants(group, delivery.message_id):
            self.violated(3, f"{what}: not wanted, and delivered")
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
        if delivery.at_ms < (free_ms := self._free_ms(progress)):
            early_ms = free_ms - delivery.at_ms
            self.violated(5, f"{what}: {early_ms} ms before the last lease or wait ended")
        if not progress.attempt < delivery.attempt <= progress.attempt + 1 + hidden:
            self.violated(4, f"{what}: follows attempt {progress.attempt}, {hidden} hidden")
        if delivery.reply:
            check_order(self, group, delivery)
        if progress.redrive:
            progress.adopted = Outcome.DONE
        progress.redrive = progress.rewind = progress.skip = None
        progress.passed = progress.again = False
        progress.reply = delivery.reply
        progress.attempt, progress.handle = delivery.attempt, delivery.handle
        progress.unseen = 0
        progress.life = self.life
        progress.broker_ms = delivery.broker_ms
        progress.free_ms = delivery.asked_ms + delivery.invisible_ms
        progress.renewed_ms = delivery.renewed_ms and delivery.asked_ms + delivery.renewed_ms

    def acking(self, group: str, message_id: str) -> None:
        progress = self.of(group, message_id)
        progress.ack = progress.ack or Outcome.UNKNOWN

    def acked(
        self, group: str, message_id: str, handle: str, *, accepted: bool, at_ms: int
    ) -> None:
        """The answer, here at `at_ms`; refused if the handle was no longer good.

        A number of attempts does not name a lease: what is redriven, or given anew, has it twice.

        Args:
            handle: "" if a crash may have forgotten it.
        """
        progress = self.of(group, message_id)
        if accepted:  # of a message that is dead, or was, it says nothing: it is settled
            if progress.forward is None and progress.redrive is None:
                progress.ack = Outcome.DONE
            return
        last = bool(handle) and handle == progress.handle
        live = last and at_ms < progress.free_ms and not progress.unseen
        if live and progress.ack is not Outcome.DONE:
            self.violated(3, f"{group} {message_id}: the handle of a live lease was refused")

    def waiting(self, group: str, message_id: str, asked_ms: int, wait_ms: int) -> None:
        """A nack or a change of the lease was asked for: it may have happened."""
        progress = self.of(group, message_id)
        progress.renewed_ms = 0
        progress.free_ms = min(progress.free_ms, asked_ms + wait_ms)

    def waits(
        self, group: str, message_id: str, asked_ms: int, wait_ms: int, handle: str = ""
    ) -> None:
        """The nack or change was acknowledged; `handle`: of the changed lease, if it goes on."""
        progress = self.of(group, message_id)
        progress.free_ms, progress.handle = asked_ms + wait_ms, handle

    def freed(self, group: str, message_id: str) -> None:
        """Its holder left: the lease may end at any moment."""
        progress = self.of(group, message_id)
        progress.free_ms = progress.renewed_ms = 0

    def left(self) -> None:
        """All whose leases are renewed have left."""
        for progress in self.progress.values():
            progress.renewed_ms = 0

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

    def redriving(self, group: str, message_id: str, letters: int = 1) -> None:
        """A dead letter may begin again with attempt 1; a crash may forget that, and its death.

        `letters`: so many of the message there are, with this one.
        """
        progress = self.of(group, message_id)
        progress.redrive, progress.dead = Outcome.UNKNOWN, False
        progress.ack = progress.forward = None
        progress.skip = progress.skip and Outcome.UNKNOWN
        progress.free_ms = progress.renewed_ms = 0
        progress.letters_before, progress.letters_least = letters, letters - 1

    def redriven(self, group: str, message_id: str) -> None:
        progress = self.of(group, message_id)
        progress.redrive, progress.life = Outcome.DONE, self.life
        progress.attempt = progress.unseen = 0
        progress.letters_before = progress.letters_least
        progress.skip, progress.passed = None, False

    def died(self, group: str, message_id: str, body: bytes) -> None:
        """A dead letter, not redriven, was found in %DLQ%group."""
        message = self.messages.get(message_id)
        if message is None or md5(body).digest() != message.body_md5:
            self.violated(1, f"{group} {message_id}: a dead letter nobody sent")
        progress = self.of(group, message_id)
        progress.letters += 1
        if progress.letters <= progress.letters_least:  # of what was before it began anew
            progress.dead = Outcome.UNKNOWN in (progress.rewind, progress.redrive)
            return
        if progress.letters <= progress.letters_before:  # or not
            progress.dead = True
            return
        if progress.letters > progress.letters_before + 1:
            self.violated(3, f"{group} {message_id}: two dead letters")
        if progress.ack is Outcome.DONE:
            self.violated(3, f"{group} {message_id}: acknowledged, and a dead letter")
        ended = progress.forward or progress.redrive or progress.passed
        if not (ended or may_be_spent(self, group, message_id)):
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
                if progress.skip or progress.passed or not self.wants(group, message_id):
                    continue
                if message_id in gone and (progress.rewind or not progress.attempt):
                    continue
                self.violated(
                    1,
                    f"{group} {message_id}: lost (due {self.messages[message_id].due_ms}, last "
                    f"seen with attempt {progress.attempt} in life {progress.life})",
                )
        self.check_redriven(group)

    def summary(self) -> str:
        outcomes = Counter(message.outcome.value for message in self.messages.values())
        acks = Counter(p.ack.value for p in self.progress.values() if p.ack)
        dead = sum(progress.dead for progress in self.progress.values())
        attempts = Counter(progress.attempt for progress in self.progress.values())
        return (
            f"{self.life} lives, sends {dict(outcomes)}, acks {dict(acks)}, {dead} dead letters, "
            f"deliveries by last attempt {dict(sorted(attempts.items()))}"
        )

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
        elif message.deleted is Outcome.DONE:
            progress = self.of(group, delivery.message_id)
            if not (progress.redrive or progress.adopted):
                self.violated(2, f"{what}: its topic was deleted, yet it came")


def check_order(ledger: Ledger, group: str, delivery: Delivery) -> None:
    """I6: what was promised of the message group before this one is settled, or in its reply."""
    mine = ledger.messages.get(delivery.message_id)
    if mine is None or not mine.key or mine.deleted:
        return
    for message_id, message in ledger.messages.items():
        if message_id == delivery.message_id:
            return  # what follows was sent later
        if message.key != mine.key or message.outcome is not Outcome.DONE or message.deleted:
            continue
        before = ledger.of(group, message_id)
        settled = before.ack or before.forward or before.dead or before.skip or before.passed
        if settled or before.reply == delivery.reply or may_be_spent(ledger, group, message_id):
            continue
        if before.redrive is not None:
            if before.redrive is Outcome.UNKNOWN:
                continue
        elif ledger.retention_ms and delivery.at_ms - message.sent_ms >= ledger.retention_ms:
            continue  # it may have expired
        ledger.violated(6, f"{group} {delivery.message_id}: before {message_id} of {mine.key}")


def may_be_spent(ledger: Ledger, group: str, message_id: str) -> bool:
    """It may have had all its attempts, under some policy there was."""
    progress = ledger.of(group, message_id)
    least = ledger.strictest.get(group, ledger.attempts_max[group])
    return progress.attempt + ledger._hidden(message_id, progress) >= least
