"""The commit log: records in segments, appended to a batch in memory, written once per loop turn.

Positions are absolute bytes since the log was created. Four of them describe it at any moment:

    start ≤ durable ≤ written ≤ end
            (synced)  (pwrite) (includes the batch)

`append` decides everything that can be refused before it changes anything: a record that is too
large, a full disk, a log that failed earlier. A segment always ends with a BLANK record, and its
successor exists before the BLANK is appended. A failed write or sync latches the log read-only, is
never tried again, and what the failed batch left in the file is zeroed where the disk still allows.

`sync` and `prepare_next` may run in a thread beside everything else; all other calls belong to one.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, chain, count, repeat
from pathlib import Path
from typing import Final, NoReturn

from xxhash import xxh3_64_intdigest

from latermq_broker.callbacks import do_nothing
from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import CorruptRecordError, StoreBusyError, StoreReadOnlyError
from latermq_broker.store.files import NO_DESCRIPTOR_ERRNOS, Files, write_all
from latermq_broker.store.log.commitment import Commitment, WrittenPiece
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES, ZERO_CHUNK, Segment
from latermq_broker.store.log.segment_row import SegmentRow
from latermq_broker.store.records.record import (
    CHECKSUM,
    COVERED,
    FLAG_CLEAN,
    FLAG_MORE,
    HEADER_BYTES,
    LAG_UNKNOWN,
    MAGIC_WORD,
    PADDING,
    Record,
    RecordType,
    decode_record,
    fault,
    join_record,
    padded_bytes,
    record_bytes,
    record_length,
    unwritten_record,
)

BLANK_BYTES: Final = HEADER_BYTES  # kept free at the end of every segment
NO_SPARE_TYPES: Final = frozenset({RecordType.MESSAGE, RecordType.HALF, RecordType.MOVE})
LOG_CLOSED: Final = -1  # as `_room_end`: sends every append down the slow path


class _Piece:
    """The part of a batch that goes into one segment."""

    __slots__ = ("chunks", "position", "segment")

    def __init__(self, segment: Segment, position: int) -> None:
        self.segment = segment
        self.position = position
        self.chunks: list[bytes] = []


class CommitLog:
    """See the module. Built by `Store`, which recovers it and then calls `resume`."""

    def __init__(self, files: Files, directory: Path, config: StoreConfig, uuid: bytes) -> None:
        self.end = self.written = self.durable = 0
        self.epoch = 0
        self.last_store_ms = 0
        self.last_position = 0  # of the newest record, the batch included; 0: none yet
        self.appended = 0  # records since the log was opened
        self._files = files
        self._config = config
        self.row = SegmentRow(files, directory, config, uuid)
        self._record_bytes_max = config.record_bytes_max
        self._pieces: list[_Piece] = []
        self._chunks: list[bytes] = []  # of the last piece
        self._unwritten: dict[int, tuple[bytes, bytes]] = {}  # position: covered header, payload
        self._room_end = LOG_CLOSED  # no record may end beyond
        self._group_open = False
        self._mark_end = 0  # end of the log as the last MARK left it
        self._unsynced: list[Segment] = []  # oldest first
        self._sealed: list[Segment] = []  # synced to their end, descriptor still open
        self.syncs: list[int] = []  # the numbers of those that the disk is at, oldest first
        self._sync_numbers = count()
        self._failure: str | None = None
        self.after_roll: Callable[[], None] = do_nothing  # when a further segment is in use
        self.commitment = Commitment(config.flush)

    # --- start ---------------------------------------------------------------------------------

    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take over the segments found on disk; until `resume` the log can only be read."""
        self.row.adopt(segments)

    def resume(self, end: int, epoch: int, store_ms: int) -> None:
        """Go on appending at `end`, up to which everything is on the medium.

        Begins with a MARK of the new epoch, synced: from then on no one can take this start for
        one that never was, and no epoch is used twice.
        Raises:
            StoreFullError: the log ends with its last segment and there is no room.
            StoreReadOnlyError: the medium refuses.
            OSError.
        """
        if end == self.segments[-1].end:
            self.row.open_next(store_ms)
            self.row.sync_names()
            end += SEGMENT_HEADER_BYTES
        self.end = self.written = self.durable = end
        self.epoch = epoch
        self.last_store_ms = store_ms
        self._begin_piece()
        self.mark(store_ms)
        self.write()
        self.synced(self.sync())

    # --- append --------------------------------------------------------------------------------

    def append(
        self,
        type: RecordType,
        parts: Sequence[bytes | memoryview],
        now_ms: int,
        *,
        more: bool = False,
    ) -> int:
        """Add a record to the batch; its position.

        Args:
            parts: the payload, joined.
            more: the next append belongs to the same atomic group; `reserve` the group first.
        Raises:
            ValueError: larger than `StoreConfig.record_bytes_max`, or a group not reserved.
            StoreFullError, StoreReadOnlyError: as the names say. In all cases nothing changed.
        """
        payload = b"".join(parts)
        length = HEADER_BYTES + len(payload)
        size = (length + 7) & -8
        if self.end + size > self._room_end or length > self._record_bytes_max:
            self._make_room(length, spare=type not in NO_SPARE_TYPES)
        self._group_open = more
        return self._append(type, payload, now_ms, 1 if more else 0)

    def _append(self, type_: RecordType, payload: bytes, now_ms: int, flags: int) -> int:
        position = self.end
        length = HEADER_BYTES + len(payload)
        if now_ms > self.last_store_ms:
            self.last_store_ms = now_ms
        lag = (position - self.durable) >> 3
        if lag > LAG_UNKNOWN:
            lag = LAG_UNKNOWN
        covered = COVERED.pack(
            length, type_, flags, MAGIC_WORD, position, self.last_store_ms, self.epoch, lag
        )
        checksum = xxh3_64_intdigest(payload, xxh3_64_intdigest(covered))
        self._chunks += (checksum.to_bytes(8, "little"), covered, payload, PADDING[length & 7])
        self._unwritten[position] = (covered, payload)
        self.last_position = position
        self.end = position + ((length + 7) & -8)
        self.appended += 1
        return position

    def append_group(
        self, type: RecordType, payloads: Sequence[bytes], now_ms: int
    ) -> tuple[list[int], list[int]]:
        """Add records of one type, which recovery takes all or none of; positions and lengths.

        Raises as `reserve`; then nothing changed.
        """
        if len(payloads) == 1:
            return [self.append(type, payloads, now_ms)], [HEADER_BYTES + len(payloads[0])]
        lengths = [HEADER_BYTES + len(payload) for payload in payloads]
        sizes = [(length + 7) & -8 for length in lengths]
        if self.end + sum(sizes) > self._room_end or max(lengths) > self._record_bytes_max:
            self.reserve(list(map(len, payloads)), spare=type not in NO_SPARE_TYPES)
        if now_ms > self.last_store_ms:
            self.last_store_ms = now_ms
        *positions, end = accumulate(sizes, initial=self.end)
        lags = [(position - self.durable) >> 3 for position in positions]
        if lags[-1] > LAG_UNKNOWN:
            lags = [min(lag, LAG_UNKNOWN) for lag in lags]
        flags = [FLAG_MORE] * len(payloads)
        flags[-1] = 0
        headers = list(
            map(
                COVERED.pack,
                lengths,
                repeat(type),
                flags,
                repeat(MAGIC_WORD),
                positions,
                repeat(self.last_store_ms),
                repeat(self.epoch),
                lags,
            )
        )
        checksums = map(xxh3_64_intdigest, payloads, map(xxh3_64_intdigest, headers))
        paddings = [PADDING[length & 7] for length in lengths]
        parts = zip(map(CHECKSUM.pack, checksums), headers, payloads, paddings, strict=True)
        self._chunks.extend(chain.from_iterable(parts))
        self._unwritten.update(zip(positions, zip(headers, payloads, strict=True), strict=True))
        self.last_position = positions[-1]
        self.end = end
        self.appended += len(payloads)
        return positions, lengths

    def reserve(
        self, payload_sizes: Sequence[int], *, spare: bool = False, large: bool = False
    ) -> None:
        """Make sure that records with such payloads fit one after another into one segment.

        Args:
            spare: on a full disk it may be the spare; for everything but sends.
            large: it may be one that is larger than the setting says.
        Raises:
            ValueError: one of them, or all together, can never fit.
            StoreFullError, StoreReadOnlyError: nothing changed.
        """
        self._require_open()
        assert not self._group_open, "a group is reserved before its first record"
        largest = max(payload_sizes, default=0) + HEADER_BYTES
        if largest > self._record_bytes_max:
            raise ValueError(_too_large(largest, self._record_bytes_max))
        total = sum(record_bytes(size) for size in payload_sizes)
        room = self._config.segment_bytes - SEGMENT_HEADER_BYTES - BLANK_BYTES
        if total > room and not large:
            raise ValueError(
                f"{len(payload_sizes)} records of one atomic group take {total} bytes; "
                f"a segment holds {room}"
            )
        if self.end + total > self._room_end:
            self._roll(total, spare=spare)

    def mark(self, now_ms: int, *, clean: bool = False) -> None:
        """Append a MARK if everything is durable and the log does not end with one already.

        It proves the last batch durable, so that later damage to it is not taken for a torn tail.
        Args:
            clean: the broker stops in order; appended in any case.
        """
        if not clean and (self.end != self.durable or self.end == self._mark_end):
            return
        if self.end + HEADER_BYTES > self._room_end:
            self._make_room(HEADER_BYTES, spare=clean)
        self._append(RecordType.MARK, b"", now_ms, FLAG_CLEAN if clean else 0)
        self._mark_end = self.end

    def _make_room(self, length: int, *, spare: bool) -> None:
        self._require_open()
        if length > self._record_bytes_max:
            raise ValueError(_too_large(length, self._record_bytes_max))
        if self.end + padded_bytes(length) > self._room_end:
            if self._group_open:
                raise ValueError("an atomic group outgrew what was reserved for it")
            self._roll(padded_bytes(length), spare=spare)

    def _roll(self, need_bytes: int, *, spare: bool) -> None:
        """Close the segment with BLANK and go on in the next one, which exists before we do."""
        assert self._room_end != LOG_CLOSED, "a log is resumed before anything is appended to it"
        following = self.row.open_next(self.last_store_ms, need_bytes, spare=spare)
        self._append(RecordType.BLANK, b"", self.last_store_ms, 0)
        self.end = following.base + SEGMENT_HEADER_BYTES
        self._begin_piece()
        # With each segment: sends of a second could fill what a checkpoint needs, without which
        # nothing old goes.
        with suppress(OSError):  # the next look says so
            self.after_roll()

    # --- segments ------------------------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        """Return what every file of the log carries; empty until it has one."""
        return self.row.uuid

    @property
    def start(self) -> int:
        """Return where the oldest record is; 0 without segments."""
        return self.segments[0].base + SEGMENT_HEADER_BYTES if self.segments else 0

    @property
    def segments(self) -> list[Segment]:
        """Return the segments, oldest first; the last is appended to."""
        return self.row.row

    @property
    def next_wanted(self) -> bool:
        """Tell whether no successor of the last segment is prepared yet."""
        return self.row.next_wanted

    def prepare_next(self) -> None:
        """Prepare the next segment ahead, so that rolling costs a rename. May run in a thread.

        Raises StoreFullError or StoreUnusableError; the log goes on in what it has.
        """
        if self._failure is None:
            self.row.prepare_next(self.last_store_ms)

    def _begin_piece(self) -> None:
        segment = self.segments[-1]
        piece = _Piece(segment, self.end)
        self._pieces.append(piece)
        self._chunks = piece.chunks
        self._room_end = LOG_CLOSED if self._failure else segment.end - BLANK_BYTES

    # --- write and sync ------------------------------------------------------------------------

    def write(self) -> int:
        """Write the batch, one pwrite per segment it touches; `written`.

        Raises StoreReadOnlyError: the batch is void, the log takes nothing any more.
        """
        self._require_open()
        if self.written == self.end:
            return self.written
        assert not self._group_open, "a batch ends between groups"
        pieces: list[WrittenPiece] = []
        try:
            for piece in self._pieces:
                if piece.chunks:
                    segment = piece.segment
                    fd = segment.writable()
                    if segment not in self._unsynced:
                        self._unsynced.append(segment)
                    data = b"".join(piece.chunks)
                    write_all(self._files, fd, data, piece.position - segment.base)
                    pieces.append((segment, piece.position, data))
        except OSError as error:
            _erase(self._files, self._pieces)
            self._fail("write", error)
        self.written = self.end
        if self.commitment.keepers is not None:
            self.commitment.keepers.written(pieces)
        self._pieces.clear()
        self._unwritten.clear()
        self._begin_piece()
        return self.written

    def sync(self) -> int:
        """Make what is written durable; the position to pass to `synced`. May run in a thread.

        Raises:
            StoreReadOnlyError: what was written since `durable` is in doubt until a restart.
            StoreBusyError: no descriptor was left to sync with; nothing was tried, so it may be
                again.
        """
        self._require_open()
        target = self.written  # before the calls: what is written meanwhile is not covered
        number = next(self._sync_numbers)
        self.syncs.append(number)  # from here on `synced` closes no descriptor under our feet
        try:
            for segment in tuple(self._unsynced):
                self._files.datasync(segment.writable())
            self.row.sync_names()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:  # of an open: no sync says so
                raise StoreBusyError(f"the log cannot be synced just now: {error}") from error
            self._fail("sync", error)
        finally:
            self.syncs.remove(number)
        return target

    def synced(self, position: int) -> None:
        """Note in the loop what `sync` returned."""
        if position <= self.durable:
            return
        self.durable = position
        while self._unsynced and self._unsynced[0].end <= position:
            self._sealed.append(self._unsynced.pop(0))
        if not self.syncs:
            for segment in self._sealed:
                segment.release()
            self._sealed.clear()
        self.commitment.synced(position)

    def void(self, why: str = "the broker failed at a record; restart it to recover") -> None:
        """Give up the batch: it holds what must not be replayed. The log takes nothing more."""
        self._failure = self._failure or why
        self._room_end = LOG_CLOSED

    def _fail(self, what: str, error: OSError) -> NoReturn:
        self._failure = f"the log's {what} failed ({error}); restart the broker to recover"
        self._room_end = LOG_CLOSED
        raise StoreReadOnlyError(self._failure) from error

    def _require_open(self) -> None:
        if self._failure is not None:
            raise StoreReadOnlyError(self._failure)

    @property
    def failed(self) -> bool:
        """Tell whether the log is read-only: a write or sync failed, or it was made `void`."""
        return self._failure is not None

    # --- read ----------------------------------------------------------------------------------

    def read(self, position: int) -> Record:
        """Read the record at a position that `append` returned or replay passed; payload is a copy.

        Raises CorruptRecordError: the bytes no longer match.
        """
        unwritten = self._unwritten.get(position)
        if unwritten is not None:
            covered, payload = unwritten
            return unwritten_record(covered, payload, position)
        segment, view = self.row.mapped(position)
        offset = position - segment.base
        header = view[offset : offset + HEADER_BYTES]
        length = record_length(header)
        if length:
            payload = view[offset + HEADER_BYTES : offset + length]
            record = join_record(header, payload, position)
            if record is not None:
                return record
        page = memoryview(view[offset : offset + padded_bytes(max(length, HEADER_BYTES))])
        record = decode_record(page, 0, position)
        if record is None:
            raise CorruptRecordError(position, fault(page, 0, position))
        return record

    def close(self) -> None:
        """Close the files; writes nothing."""
        self.row.close()
        self._failure = self._failure or "the log is closed"
        self._room_end = LOG_CLOSED


def _erase(files: Files, pieces: Sequence[_Piece]) -> None:
    """Zero what a failed write may have left, so that a refused record cannot come back."""
    with suppress(OSError):  # recovery cuts off what the disk does not let us erase
        for piece in pieces:
            segment = piece.segment
            offset = piece.position - segment.base
            end = offset + sum(map(len, piece.chunks))
            for at in range(offset, end, len(ZERO_CHUNK)):
                write_all(files, segment.writable(), ZERO_CHUNK[: end - at], at)


def _too_large(length: int, length_max: int) -> str:
    return f"a record of {length} bytes; the largest is {length_max}"
