"""The log as a list: what a store rig appended, against what a recovery finds.

Facts are payloads at positions, in atomic groups. After a crash the log must hold a prefix of the
groups appended, byte for byte and in order, at least as long as what was promised for that crash:
everything written after the death of the process, everything durable after a loss of power.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Fact = tuple[int, bytes]  # position, payload


@dataclass(slots=True)
class LogModel:
    groups: list[list[Fact]] = field(default_factory=list)  # appended, in order
    written: int = 0  # groups acknowledged as written
    durable: int = 0  # groups acknowledged as durable
    refused: set[bytes] = field(default_factory=set)  # payloads that must never come back

    def appended(self, facts: Sequence[Fact]) -> None:
        self.groups.append(list(facts))

    def wrote(self) -> None:
        self.written = len(self.groups)

    def synced(self, position: int) -> None:
        """Everything below `position` is durable."""
        while self.durable < len(self.groups) and self.groups[self.durable][-1][0] < position:
            self.durable += 1

    def check(self, found: Sequence[Fact], *, power_lost: bool) -> None:
        """Compare with what a recovery found, then take that over as the new truth."""
        expected = [fact for group in self.groups for fact in group]
        assert list(found) == expected[: len(found)], "the log does not hold a prefix"
        kept = 0
        count = 0
        while count < len(found):
            count += len(self.groups[kept])
            kept += 1
        assert count == len(found), "an atomic group came back in part"
        promised = self.durable if power_lost else self.written
        assert kept >= promised, f"{promised - kept} acknowledged groups of {promised} are lost"
        assert not self.refused.intersection(payload for _, payload in found), "refused came back"

    def truncate(self, found: Sequence[Fact]) -> None:
        """Forget what recovery cut off; all that is left is durable."""
        count = 0
        for index, group in enumerate(self.groups):
            if count == len(found):
                del self.groups[index:]
                break
            count += len(group)
        self.written = self.durable = len(self.groups)
