"""Makes the log of a broker that was alone a replicated one, its directory the last owner's.

    sound, cut into groups ──► the replicated log has nothing, or its beginning ──► fence
        ──► the rest, group by group ──► read back: byte for byte ──► REPLICA: what the directory is

The directory is changed by the note alone, in the end. Until then the broker it belongs to may be
started as before; and who runs this again goes on behind what the replicated log has: it is read
by the rule that all readers apply, so that whatever else came of a run before does not count.
"""

import asyncio
import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

from latermq_broker.deferred import Later
from latermq_broker.errors import (
    CorruptRecordError,
    FencedError,
    LogUnavailableError,
    StoreUnusableError,
)
from latermq_broker.offline.mending.closing import Ending
from latermq_broker.replication.batch import Batch, cluster_hash, encode_batch, fence_of
from latermq_broker.replication.entry import Entry, Offset
from latermq_broker.replication.note import Note, write_note
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.replica import TOKEN_MAX
from latermq_broker.replication.replicated_log import ReplicatedLog, entries_of
from latermq_broker.replication.shipper import Shipper
from latermq_broker.replication.validity import EMPTY, Verdict
from latermq_broker.store.files import Files
from latermq_broker.store.log.segment import Segment
from latermq_broker.store.offline.inspect import examine_directory
from latermq_broker.store.records.record import Record

GROUP_BYTES: Final = 512 << 10  # that a reader takes whole, and a batch has room for
SILENCE_S: Final = 60.0  # while entries are due


class OwnLog:
    """The log of a directory that nobody serves, and where it may be cut: groups stay whole.

    Raises:
        CorruptRecordError: it is damaged, or a repair has not come to its end.
        StoreError: as `examine_directory`.
    """

    def __init__(self, directory: Path, files: Files, group_bytes: int = GROUP_BYTES) -> None:
        self._group_bytes = group_bytes
        self._cuts: list[int] = []  # behind the first, which is where its first record is
        self._whole = True  # the last record that was looked at ends a group
        self._ending = Ending()
        examination = examine_directory(directory, files, self._look)
        report = examination.report
        if report.damages or self._ending.open:
            position = report.damages[0].position if report.damages else report.end
            raise CorruptRecordError(position, "the log is not sound: see `latermq log verify`")
        self.segments = [  # of which what the medium refuses is an error: examined, it is zeros
            Segment(files, each.path, each.base, each.size, None) for each in examination.segments
        ]
        self.start = self.segments[0].base
        self.end = report.end
        self._bases = [segment.base for segment in self.segments]

    def pieces(self, begin: int) -> Iterator[tuple[Piece, bool]]:
        """Yield what lies behind `begin`, and whether a group ends with it. Raises OSError."""
        for cut in (*(each for each in self._cuts[1:] if begin < each < self.end), self.end):
            while begin < cut:
                segment = self._segment_at(begin)
                end = min(cut, segment.end)
                size = segment.size if begin == segment.base else 0
                yield Piece(begin, segment.pread(end - begin, begin), size), end == cut
                begin = end

    def has(self, piece: Piece) -> bool:
        """Tell whether just these bytes stand in it, there. Raises OSError."""
        begin, size = piece.position, len(piece.data)
        if begin < self.start or begin + size > self.end:
            return False
        return self._segment_at(begin).pread(size, begin) == piece.data

    def _segment_at(self, position: int) -> Segment:
        return self.segments[bisect_right(self._bases, position) - 1]

    def _look(self, record: Record) -> None:
        """Note where groups begin, so many bytes apart."""
        self._ending.look(record)
        if not self._cuts or (
            self._whole and record.position - self._cuts[-1] >= self._group_bytes
        ):
            self._cuts.append(record.position)
        self._whole = not record.more


class Adopting:
    """One way of a log into the replicated log.

    Args:
        own: of a directory that is locked.
        new: says which cluster and shard it is to be of.
        tell: called with up to where a quorum has the log, as that grows.
    """

    def __init__(
        self, own: OwnLog, new: Note, replicated_log: ReplicatedLog, tell: Callable[[int], None]
    ) -> None:
        self._own = own
        self._new = new
        self._replicated_log = replicated_log
        self._tell = tell
        self._sent: deque[Later[Offset]] = deque()  # of what the shipper has open

    async def run(self) -> Note:
        """Ship what is not there yet, and look at all of it; what the directory is then.

        Raises:
            StoreUnusableError: something else stands in the replicated log.
            FencedError: somebody claimed it meanwhile.
            StoreError: as `ReplicatedLog.tail`, and as `Reader.read`.
            OSError: the directory cannot be read.
        """
        new, own = self._new, self._own
        before = (await self._compared()).standing or EMPTY
        mine = before.epoch + 1, 1 + secrets.randbelow(TOKEN_MAX)
        fence = fence_of(cluster_hash(new.cluster), new.shard, *mine)
        await self._replicated_log.claim(encode_batch(fence))
        await self._ship(fence, before.whole_end or own.start)
        reader = await self._compared()
        after = reader.standing or EMPTY
        if (after.epoch, after.token) != mine or after.whole_end != own.end:
            raise FencedError(
                f"the replicated log has it up to {after.whole_end} of {own.end}, and another "
                "broker's fence: stop the brokers of this cluster"
            )
        return new.of(reader)._replace(mine=mine)

    async def _ship(self, fence: Batch, begin: int) -> None:
        """Append what lies behind `begin`, and wait until a quorum has it."""
        shipper = Shipper(fence, begin)
        for piece, last in self._own.pieces(begin):
            shipper.add(piece, last=last)
            while shipper.waiting_bytes:
                await self._step(shipper)
        while not shipper.idle:
            await self._step(shipper)

    async def _step(self, shipper: Shipper) -> None:
        """Append what may go; if nothing may, wait for the oldest that went."""
        shipments = shipper.ship(0)
        self._sent += [self._replicated_log.append(each.entry) for each in shipments]
        if not shipments:
            await self._sent.popleft()
            batch = shipper.open[0].batch
            shipper.settle(batch.sequence)
            self._tell(batch.position + len(batch.data))

    async def _compared(self) -> Reader:
        """Read all that the replicated log has, and have it be what this log begins with."""
        reader = Reader(cluster_hash(self._new.cluster), self._new.shard)
        end, loop = await self._replicated_log.end(), asyncio.get_running_loop()
        try:
            async with (
                asyncio.timeout(SILENCE_S) as patience,
                aclosing(entries_of(self._replicated_log, 0, end)) as entries,
            ):
                async for entry in entries:
                    self._compare(reader, entry)
                    patience.reschedule(loop.time() + SILENCE_S)
        except TimeoutError:
            raise LogUnavailableError(
                f"the replicated log says that it has {end} entries, and gives none behind "
                f"{reader.offset}: if they were deleted, delete the topic"
            ) from None
        return reader

    def _compare(self, reader: Reader, entry: Entry) -> None:
        verdict, pieces = reader.read(entry)
        begins = min(reader.segments, default=self._own.start)  # later: its front was trimmed
        alien = verdict in (Verdict.FOREIGN, Verdict.ELSEWHERE) or begins != self._own.start
        if alien or not all(map(self._own.has, pieces)):
            raise StoreUnusableError(
                f"the replicated log of {self._new.cluster!r}, shard {self._new.shard}, is not "
                f"empty, and entry {entry.offset} is not of this log: name another "
                "replication.cluster, or delete its topics"
            )


def keep_note(directory: Path, files: Files, own: OwnLog, note: Note) -> None:
    """Have a directory be a copy, whose log is durable whatever its last broker did.

    Raises OSError.
    """
    for segment in own.segments:
        files.datasync(segment.writable())
        segment.release()
    write_note(files, directory, note)
