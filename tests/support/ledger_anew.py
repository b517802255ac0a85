"""What is deleted and made anew under its name: the topic, and groups; see `ledger`.

A deleted topic ends its messages, and what every group had of them; their dead letters stay, and
one that is redriven lives in the topic that has the name now. A deleted group ends its progress
alone: one made anew is given all that is there, as if its offsets were set back to the beginning.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from support.ledger_moves import Moves, Progress
from support.ledger_sends import Outcome

Letters = Mapping[str, Counter[str]]  # group → message id → its dead letters


@dataclass(slots=True, kw_only=True)
class Anew(Moves):
    """What may be gone, and what has to be there instead."""

    epoch: str = ""  # of the topic, since it was told to be made; "": not known
    doomed: dict[str, tuple[int, Letters]] = field(default_factory=dict)
    """Epochs of topics whose deletion was asked for, in which life, and not answered, by time."""
    deleted_epochs: set[str] = field(default_factory=set)
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Group → the kinds that it may have now, "" if it may not be there; if it was ever deleted."""

    def deleting_topic(self, epoch: str, letters: Letters) -> None:
        """With all that was ever sent to it. `letters`: those that stay."""
        for message in self.messages.values():
            if message.deleted is None:
                message.deleted, message.topic = Outcome.UNKNOWN, epoch
        self.doomed[epoch] = self.life, letters
        self.epoch, self.queues = "", 0

    def deleted_topic(self, epoch: str) -> None:
        self.deleted_epochs.add(epoch)
        for before in list(self.doomed):  # else it could not have been asked for
            self._end_topic(before, sure=True)

    def made_topic(self, epoch: str) -> None:
        """It was told to be there, until its deletion is asked for."""
        self.epoch = epoch

    def found_topic(self, epoch: str) -> None:
        """The topic that is there after a start, "" for none: it tells what was deleted."""
        if epoch in self.deleted_epochs:
            self.violated(1, f"topic {epoch} was deleted, and is there again")
        if self.epoch and self.epoch != epoch:
            self.violated(1, f"topic {self.epoch} is lost, {epoch or 'none'} is there")
        if epoch in self.doomed:
            doomed = list(self.doomed)
            never = doomed[doomed.index(epoch) + 1 :]  # were made after it was deleted: it was not
            for each in (epoch, *never):
                del self.doomed[each]
            for message in self.messages.values():
                if message.deleted is Outcome.UNKNOWN and message.topic in (epoch, *never):
                    message.deleted = None if message.topic == epoch else Outcome.DONE
        for before in list(self.doomed):
            self._end_topic(before, sure=False)

    def _end_topic(self, epoch: str, *, sure: bool) -> None:
        """Nothing of it is left but letters, and what was redriven since, if that is not sure."""
        life, letters = self.doomed.pop(epoch)
        groups = {*letters, *(group for group, _ in self.progress)}
        gone = [name for name, message in self.messages.items() if message.deleted is not None]
        for message_id in gone:
            message = self.messages[message_id]
            if message.topic == epoch:
                message.deleted = Outcome.DONE
            for group in groups:
                before = self.progress.get((group, message_id))
                count = letters.get(group, Counter[str]())[message_id]
                if before is None and not count:
                    continue
                fresh = self.progress[group, message_id] = Progress(life=life)
                fresh.letters_before = fresh.letters_least = count
                if before is not None and not sure:
                    fresh.redrive = Outcome.UNKNOWN if before.redrive or before.adopted else None
                    fresh.unseen, fresh.forward = before.unseen, before.forward

    def rewinding(self, group: str, message_ids: Iterable[str], letters: Counter[str]) -> None:
        """What was redriven into the topic stands somewhere among them: it may be given again."""
        super(Anew, self).rewinding(group, message_ids, letters)
        for _, progress in self.lives_elsewhere(group):
            progress.again = True
            progress.free_ms = progress.renewed_ms = 0

    def remaking_group(self, group: str, kind: str, letters: Counter[str], wait_ms: int) -> None:
        """Delete it, and make it anew: both may have happened, or only the one.

        Args:
            wait_ms: for so long it holds back what it does not want, if it keeps an order.
        """
        self.kinds[group] = (*self.kinds.get(group, (self.kind_of(group),)), "", kind)
        self.unwanted_ms[group] = max(wait_ms, self.unwanted_ms.get(group, 0))
        self.rewinding(group, self.messages, letters)
        for _, progress in self.lives_elsewhere(group):
            progress.adopted, progress.redrive = None, Outcome.UNKNOWN

    def remade_group(self, group: str, kind: str, wait_ms: int) -> None:
        self.kinds[group] = (kind,)
        self.unwanted_ms.pop(group)
        if wait_ms:
            self.unwanted_ms[group] = wait_ms
        self.rewound(group, self.messages)
        self.filters.pop(group, None)

    def kind_of(self, group: str) -> str:
        return "ordered" if group in self.unwanted_ms else "plain"

    def found_group(self, group: str, kind: str) -> None:
        """The one that is there after a start; "": none."""
        kinds = self.kinds.get(group, (self.kind_of(group),))
        if kind not in kinds:
            self.violated(1, f"group {group} is {kind or 'lost'}, {kinds} was told")

    def lives_elsewhere(self, group: str) -> Iterator[tuple[str, Progress]]:
        """What a redrive brought into the topic that has the name now, and its progress there."""
        for (owner, message_id), progress in self.progress.items():
            message = self.messages.get(message_id)
            deleted = message is not None and message.deleted is Outcome.DONE
            if owner == group and deleted and Outcome.DONE in (progress.redrive, progress.adopted):
                yield message_id, progress

    def check_redriven(self, group: str) -> None:
        """What was redriven into a topic made anew came, too."""
        for message_id, progress in self.lives_elsewhere(group):
            settled = progress.ack or progress.dead or progress.passed
            if not settled and self.wants(group, message_id):
                self.violated(1, f"{group} {message_id}: redriven into a new topic, and lost")
