"""The log as who makes a backup sees it: a cut, and the bytes up to there.

A cut is a position between two atomic groups. What is below it never changes, once it is on the
disk: but for a repair, which leaves another `repairs` behind.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from latermq_broker.engine.retention.retention import Retention
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import BadRequestError, CorruptRecordError, NotFoundError
from latermq_broker.store.directory import LOST_NAME, SHARD_NAME
from latermq_broker.store.files import OpenMode

MARK_BYTES_MAX: Final = 64 << 10
_CHECKSUM_BYTES: Final = 8


class LogMoment(NamedTuple):
    """A cut that is not yet on the disk."""

    position: int
    newest: int  # where the newest record below it is
    hold: str


class LogCut(NamedTuple):
    uuid: bytes
    position: int
    newest: tuple[int, int]  # (position, checksum) of a record
    segments: Sequence[tuple[int, int]]  # (base, size)
    repairs: int
    directory: str
    shard_mark: bytes


class LogCopy:
    def __init__(self, state: EngineState, retention: Retention) -> None:
        self._store = state.store
        self._log = state.store.log
        self._holds = retention.holds

    def begin(self, now_ms: int) -> LogMoment:
        """Cut the log here and hold all that is before; to be synced, and then looked at."""
        hold = self._holds.begin(self._log.segments[0].base, now_ms)
        return LogMoment(self._log.end, self._log.last_position, hold)

    def cut(self, moment: LogMoment) -> LogCut:
        """Tell what belongs to a moment that is committed now."""
        assert self._log.commitment.position >= moment.position
        return LogCut(
            uuid=self._log.uuid,
            position=moment.position,
            newest=(moment.newest, self._checksum(moment.newest)),
            segments=[
                (segment.base, segment.size)
                for segment in self._log.segments
                if segment.base < moment.position
            ],
            repairs=self._repairs(),
            directory=str(self._store.directory.absolute()),
            shard_mark=self._shard_mark(),
        )

    def has(self, position: int, checksum: int) -> bool:
        """Tell whether the log has this record."""
        within = self._log.start <= position < self._log.commitment.position
        return within and self._checksum(position) == checksum

    def keep(self, hold: str, position: int, now_ms: int) -> None:
        """Renew a hold, from a position on; 0: end it. Raises NotFoundError."""
        if not self._holds.keep(hold, position, now_ms):
            raise NotFoundError("nothing is held by this name: a hold ends when nobody renews it")

    def read(self, begin: int, count: int) -> bytes:
        """Read some of the log's bytes, at least one, at most `count`, of one segment.

        Raises:
            NotFoundError: retention has deleted them.
            BadRequestError: they are not written yet.
        """
        if begin < self._log.segments[0].base:
            raise NotFoundError(
                f"position {begin} is gone: the log begins at {self._log.segments[0].base} now"
            )
        if begin >= self._log.commitment.position:
            raise BadRequestError(f"position {begin} is behind the end of what is on the disk")
        segment, view = self._log.row.mapped(begin)
        end = min(begin + count, segment.end, self._log.commitment.position)
        with suppress(OSError):  # what is wanted next is asked for while this is on its way
            ahead = min(end + count, segment.end)
            if ahead > end:
                view.will_need(end - segment.base, ahead - end)
        return view[begin - segment.base : end - segment.base]

    def _checksum(self, position: int) -> int:
        """Read the first bytes of what is at a position: of a record they are its checksum."""
        try:
            segment, view = self._log.row.mapped(position)
        except CorruptRecordError:
            return 0
        at = position - segment.base
        return int.from_bytes(view[at : at + _CHECKSUM_BYTES], "little")

    def _repairs(self) -> int:
        """Make a number of what repairs left behind; 0: there was none."""
        try:
            names = self._store.files.list_directory(self._store.directory / LOST_NAME)
        except OSError:
            return 0
        return xxh3_64_intdigest("/".join(names).encode()) if names else 0

    def _shard_mark(self) -> bytes:
        files = self._store.files
        try:
            fd = files.open(self._store.directory / SHARD_NAME, OpenMode.READ)
        except OSError:
            return b""
        try:
            return files.pread(fd, MARK_BYTES_MAX, 0)
        finally:
            files.close(fd)
