"""What was heard of a log's brokers, and how long ago, by the topic's clock.

The age of an entry is what the topic's clock went on from it to the last one that was read, and
the time since: no broker's clock is in it. Whoever keeps a roster writes entries itself, so the
last one is recent while the topic answers.

    heard ──SILENT_MS──► silent ──DROPPED_MS──► forgotten
      └─────────────ended in order──────────────────┘
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from latermq_broker.observability.replication_figures import Member, MemberSeen
from latermq_broker.replication.members.member_entry import decode_member

SILENT_MS: Final = 15_000
DROPPED_MS: Final = 3_600_000  # the topic forgets as soon
MEMBERS_MAX: Final = 1_000


class Notice(NamedTuple):
    """One entry of the members topic."""

    key: bytes
    value: bytes | None
    at_ms: int  # by the topic's clock


class Roster:
    """Times are given by a clock that never falls."""

    def __init__(self) -> None:
        self.unread = 0  # entries that were skipped
        self._members: dict[bytes, tuple[str, Member, int]] = {}  # and when it was said
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
            self._members[notice.key] = name, member, notice.at_ms
        else:
            self.unread += 1

    def seen(self, now_ms: int) -> Iterator[MemberSeen]:
        """Yield who was heard of, by name."""
        for name, member, at_ms in sorted(self._members.values()):
            ms_ago = self._age_ms(at_ms, now_ms)
            if ms_ago <= DROPPED_MS:
                yield MemberSeen(name, member, ms_ago, silent=ms_ago > SILENT_MS)

    def _has_room(self, now_ms: int) -> bool:
        """Tell whether one more fits, when those that are forgotten have gone."""
        if len(self._members) >= MEMBERS_MAX:
            self._members = {
                key: (name, member, at_ms)
                for key, (name, member, at_ms) in self._members.items()
                if self._age_ms(at_ms, now_ms) <= DROPPED_MS
            }
        return len(self._members) < MEMBERS_MAX

    def _age_ms(self, at_ms: int, now_ms: int) -> int:
        return max(self._last_at_ms - at_ms, 0) + now_ms - self._last_read_ms
