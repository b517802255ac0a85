"""What was heard of a log's brokers, and how long ago, by the topic's clock.

The age of an entry is what the topic's clock went on from it to the last one that was read, and
the time since: no broker's clock is in it. Whoever keeps a roster writes entries itself, so the
last one is recent while the topic answers.

How far behind somebody was is told by where the own log ended when that was heard, and earlier.

    heard ──SILENT_MS──► silent ──DROPPED_MS──► forgotten
      └─────────────ended in order──────────────────┘
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from latermq_broker.observability.replication_figures import Member, MemberSeen
from latermq_broker.replication.members.member_entry import decode_member

SILENT_MS: Final = 15_000
DROPPED_MS: Final = 3_600_000  # the topic forgets as soon
MEMBERS_MAX: Final = 1_000
ENDS_MS: Final = 1_000  # between two ends of the log that are remembered
ENDS_MAX: Final = 3_600


class Notice(NamedTuple):
    """One entry of the members topic."""

    key: bytes
    value: bytes | None
    at_ms: int  # by the topic's clock


class _Heard(NamedTuple):
    name: str
    member: Member
    at_ms: int  # by the topic's clock
    behind_bytes: int | None  # as in MemberSeen
    behind_ms: int | None


class Roster:
    """Times are given by a clock that never falls."""

    def __init__(self) -> None:
        self.unread = 0  # entries that were skipped
        self._members: dict[bytes, _Heard] = {}
        self._end: int | None = None  # of the own log
        self._ends: deque[tuple[int, int]] = deque(maxlen=ENDS_MAX)  # that it had, and since when
        self._last_at_ms = 0
        self._last_read_ms = 0

    def take(self, notice: Notice, now_ms: int) -> None:
        """Take the next entry."""
        self._last_at_ms, self._last_read_ms = notice.at_ms, now_ms
        if notice.value is None:
            self._members.pop(notice.key, None)
            return
        try:
            name, member = decode_member(notice.key, notice.value)
        except ValueError:
            self.unread += 1
            return
        if notice.key in self._members or self._has_room(now_ms):
            behind = None if self._end is None else max(self._end - member.position, 0)
            behind_ms = self._behind_ms(member.position, now_ms)
            self._members[notice.key] = _Heard(name, member, notice.at_ms, behind, behind_ms)
        else:
            self.unread += 1

    def seen(self, now_ms: int) -> Iterator[MemberSeen]:
        """Yield who was heard of, by name."""
        for heard in sorted(self._members.values(), key=lambda heard: heard.name):
            ms_ago = self._age_ms(heard.at_ms, now_ms)
            if ms_ago <= DROPPED_MS:
                silent, behind = ms_ago > SILENT_MS, (heard.behind_bytes, heard.behind_ms)
                yield MemberSeen(heard.name, heard.member, ms_ago, silent, *behind)

    def log_ends(self, position: int | None, now_ms: int) -> None:
        """Note where the own log ends now; None: it is another broker's."""
        self._end = position
        if position is None:
            self._ends.clear()
        elif not self._ends or now_ms - self._ends[-1][0] >= ENDS_MS:
            self._ends.append((now_ms, position))

    def _behind_ms(self, position: int, now_ms: int) -> int | None:
        """Tell how long ago the own log went on from `position`; None: that is not remembered."""
        if self._end is None or (self._end > position and self._ends[0][1] > position):
            return None
        return next((now_ms - at_ms for at_ms, end in self._ends if end > position), 0)

    def _has_room(self, now_ms: int) -> bool:
        """Tell whether one more fits, when those that are forgotten have gone."""
        if len(self._members) >= MEMBERS_MAX:
            self._members = {
                key: heard
                for key, heard in self._members.items()
                if self._age_ms(heard.at_ms, now_ms) <= DROPPED_MS
            }
        return len(self._members) < MEMBERS_MAX

    def _age_ms(self, at_ms: int, now_ms: int) -> int:
        return max(self._last_at_ms - at_ms, 0) + now_ms - self._last_read_ms
