"""What moves a group without a delivery: filters that change, and UpdateOffset; see `ledger`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from support.ledger_sends import Outcome, Sends


@dataclass(slots=True)
class Progress:
    """One message in one group, as far as its clients were told."""

    attempt: int = 0  # of the last delivery seen; 0: none
    handle: str = ""  # of its lease
    unseen: int = 0  # leases since then that a crash may have hidden
    life: int = 1  # in which it was seen
    broker_ms: int = 0  # when the broker gave it out
    free_ms: int = 0  # nobody else may have it before
    renewed_ms: int = 0  # nor before, if no life since was cut off: the lease is renewed
    ack: Outcome | None = None  # None: never asked
    forward: Outcome | None = None
    redrive: Outcome | None = None  # of its dead letter; one that is over becomes None again
    dead: bool = False  # seen among the dead letters
    letters: int = 0  # of it, that were seen there
    letters_before: int = 0  # and of deaths before it was to be given anew, or redriven, at most
    letters_least: int = 0  # and at least
    adopted: Outcome | None = None  # its topic is deleted: it came in another, by a redrive
    again: bool = False  # so it is, and an UpdateOffset since may have it begin with attempt 1
    skip: Outcome | None = None  # an UpdateOffset went past it, and it had not been given
    rewind: Outcome | None = None  # one went back: it is to be given anew, and was not yet
    passed: bool = False  # a filter that does not want it may have passed it over, or ended it
    reply: int = 0  # in which it came; 0: not told


@dataclass(slots=True, kw_only=True)
class Moves(Sends):
    """What each group has of each message, and what takes it away or gives it anew."""

    unwanted_ms: dict[str, int] = field(default_factory=dict)
    """Group that keeps the order → so long a retry waits that is not wanted, before it may end."""
    filters: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """Group → the tags that its clients asked for last."""
    cut_off: list[int] = field(default_factory=list)  # lives that did not end in order
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)

    def receiving(self, group: str, tags: frozenset[str] | None, at_ms: int) -> None:
        """A client of the group asks for these tags: it may pass over what it does not want."""
        self.filters[group] = tags
        if tags is None:
            return
        for message_id, message in self.messages.items():
            if message.tag not in tags and message.visible and message.due_ms <= at_ms:
                progress = self.of(group, message_id)
                progress.passed |= self._may_be_passed(group, message_id, progress, at_ms)

    def _may_be_passed(self, group: str, message_id: str, progress: Progress, at_ms: int) -> bool:
        """A retry waits for a filter that wants it; not for ever where the order is kept."""
        if progress.rewind or not progress.attempt:
            return True
        if group not in self.unwanted_ms:
            return False
        return bool(progress.redrive) or at_ms - progress.free_ms >= self.unwanted_ms[group]

    def wants(self, group: str, message_id: str) -> bool:
        """The filter that its clients asked with last lets it pass."""
        tags, message = self.filters.get(group), self.messages.get(message_id)
        return tags is None or message is None or message.tag in tags

    def told_offset(self, group: str, below: Iterable[str]) -> None:
        """GetOffset told a number: what is below was given, or is not to be."""
        for message_id in below:
            progress = self.of(group, message_id)
            given = progress.attempt or self._hidden(message_id, progress)
            settled = progress.ack or progress.forward or progress.redrive or progress.skip
            if not (given or settled or progress.passed):
                self.violated(1, f"{group} {message_id}: GetOffset passes it, and it was not given")

    def skipping(self, group: str, message_ids: Iterable[str]) -> None:
        """Offsets are moved past these: what was not given may never be."""
        for message_id in message_ids:
            progress = self.of(group, message_id)
            anew = progress.rewind is Outcome.UNKNOWN  # if it was, it was not given since
            if anew or not (progress.attempt or progress.redrive):
                progress.skip = progress.skip or Outcome.UNKNOWN

    def skipped(self, group: str, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            progress = self.of(group, message_id)
            given = progress.attempt or self._hidden(message_id, progress)
            if progress.skip and not given:
                progress.skip = Outcome.DONE

    def rewinding(self, group: str, message_ids: Iterable[str], letters: Counter[str]) -> None:
        """Offsets are moved before these: they may be given anew, whatever became of them.

        `letters`: how many of each lie among the group's dead letters, and stay there.
        """
        for message_id in message_ids:
            progress = self.of(group, message_id)
            progress.ack = progress.ack and Outcome.UNKNOWN
            progress.forward = progress.forward and Outcome.UNKNOWN
            progress.skip = progress.skip and Outcome.UNKNOWN
            progress.free_ms = progress.renewed_ms = 0
            progress.letters_before = progress.letters_least = letters[message_id]
            progress.rewind = Outcome.UNKNOWN

    def rewound(self, group: str, message_ids: Iterable[str]) -> None:
        """They are to be given anew: no handle is good, nothing else is known of them."""
        for message_id in message_ids:
            progress = self.of(group, message_id)
            fresh = Progress(life=self.life, broker_ms=progress.broker_ms, rewind=Outcome.DONE)
            fresh.letters_before = progress.letters_before
            fresh.letters_least = progress.letters_least
            self.progress[group, message_id] = fresh

    def acked_void(self, group: str, message_id: str, *, accepted: bool) -> None:
        """The answer to an ack whose lease an UpdateOffset withdrew."""
        if accepted:
            self.violated(3, f"{group} {message_id}: its lease was withdrawn, and is good")

    def of(self, group: str, message_id: str) -> Progress:
        return self.progress.setdefault((group, message_id), Progress())

    def _hidden(self, message_id: str, progress: Progress) -> int:
        """Count the leases of it that may have been given with no client told of them."""
        message = self.messages.get(message_id)
        first = max(progress.life, message.life if message is not None else 0)
        return sum(first <= life < self.life for life in self.cut_off) + progress.unseen

    def _free_ms(self, progress: Progress) -> int:
        """Tell until when nobody else may have it."""
        if any(progress.life <= life < self.life for life in self.cut_off):
            return progress.free_ms
        return max(progress.free_ms, progress.renewed_ms)
