"""Where messages are, by message id and by topic and key: hash → positions of records.

Derived from the log. What is new fills a block in memory; a full one is written with the next
checkpoint, which also keeps the one that is being filled; blocks go when the log they speak of is
dropped. What is missing or damaged is a gap: the engine fills it from the log, a bit per tick, and
until then a search that comes to it says so instead of finding nothing.

A hash may lead to a record of another message: whoever searches compares.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from latermq_broker.errors import IndexRebuildingError
from latermq_broker.store.derived.checkpoint import TEMPORARY_SUFFIX
from latermq_broker.store.derived.message_index_block import (
    INDEX_SUFFIX,
    BlockFile,
    Buckets,
    DamagedBlockError,
    block_name,
    write_block,
)
from latermq_broker.store.files import Files
from latermq_broker.store.records.message_records import MessageRow

log = logging.getLogger("latermq.store")

INDEX_SECTION: Final = "store.index"
TAIL_SECTION: Final = "store.index.tail"
UNWRITTEN_MAX: Final = 64  # blocks of 2 MiB; beyond, the oldest is filled again when there is room


class Gap:
    """A range of the log whose entries are missing: from the record at `low` to that at `high`."""

    __slots__ = ("at", "buckets", "high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.at = low  # the next record to read
        self.buckets = Buckets()


class IndexWrite:
    """The index's part of a checkpoint; `run` may run in a thread."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        full: Sequence[Buckets],
        named: frozenset[str],
        named_before: frozenset[str],
    ) -> None:
        self.full = tuple(full)
        self.named = named
        self._kept = named | named_before
        self.written: list[BlockFile] = []
        self._files = files
        self._directory = directory

    def run(self) -> None:
        """Write the full blocks, durably. Raises OSError."""
        for buckets in self.full:
            self.written.append(write_block(self._files, self._directory, buckets))
        if self.written:
            self._files.sync_directory(self._directory)

    def delete_others(self) -> None:
        """Delete blocks that neither this checkpoint nor the one before it names."""
        with suppress(OSError):
            for name in self._files.list_directory(self._directory):
                ours = name.endswith((INDEX_SUFFIX, TEMPORARY_SUFFIX))
                if ours and name not in self._kept:
                    self._files.unlink(self._directory / name)


class MessageIndex:
    """
    Args:
        log_start: where the oldest record is.
        block_entries: so many make a block full.
    """

    def __init__(
        self, files: Files, directory: Path, log_start: Callable[[], int], block_entries: int
    ) -> None:
        self._files = files
        self._directory = directory
        self._log_start = log_start
        self._block_entries = block_entries
        self._tail = Buckets()
        self._full: list[Buckets] = []  # not written yet
        self._written: list[BlockFile] = []
        self.gaps: list[Gap] = []
        self.named: frozenset[str] = frozenset()  # files the newest checkpoint needs

    # --- fill ----------------------------------------------------------------------------------

    def add(self, position: int, id_hash: int, topic_id: int, key_hashes: Sequence[int]) -> None:
        """Add the message in the record at `position`, which is the newest."""
        self._room().add(position, id_hash, topic_id, key_hashes)

    def add_rows(self, rows: Sequence[MessageRow]) -> None:
        """Add messages, which are the newest, in the order of the log."""
        at = 0
        while at < len(rows):
            at = self._room().add_rows(rows, at, self._block_entries)

    def _room(self) -> Buckets:
        """Return what is filled now, and not full."""
        if self._tail.count >= self._block_entries:
            self._full.append(self._tail)
            self._tail = Buckets()
            if len(self._full) > UNWRITTEN_MAX:
                oldest = self._full.pop(0)
                self._gap(oldest.low, oldest.high)
        return self._tail

    def add_run(
        self,
        positions: Sequence[int],
        id_hashes: Sequence[int],
        topic_id: int,
        key_hashes: Sequence[tuple[int, ...]],
    ) -> None:
        """Add several messages of one topic, in the order of the log."""
        tail = self._tail
        if any(key_hashes) or tail.count + len(positions) > self._block_entries:
            for position, id_hash, keys in zip(positions, id_hashes, key_hashes, strict=True):
                self.add(position, id_hash, topic_id, keys)
        else:
            tail.add_ids(positions, id_hashes)

    def fill(
        self, gap: Gap, position: int, id_hash: int, topic_id: int, key_hashes: Sequence[int]
    ) -> None:
        """Add the message of a record of a gap, in the order of the log."""
        if gap.buckets.count >= self._block_entries:
            self._full.append(gap.buckets)
            gap.low, gap.buckets = position, Buckets()
        gap.buckets.add(position, id_hash, topic_id, key_hashes)

    def filled(self, gap: Gap) -> None:
        """Close a gap, all of which was read."""
        self.gaps.remove(gap)
        if gap.buckets.count:
            self._full.append(gap.buckets)
        log.info("message index filled again", extra={"from": gap.low, "to": gap.high})

    @property
    def wants_room(self) -> bool:
        """Tell whether too much waits to be written for gaps to be filled now."""
        return len(self._full) >= UNWRITTEN_MAX // 2

    def _gap(self, low: int, high: int) -> None:
        self.gaps.append(Gap(low, high))

    # --- find ----------------------------------------------------------------------------------

    def find(
        self, hash: int, below: int, *, count_max: int, blocks_max: int
    ) -> tuple[list[int], int]:
        """Find (positions below `below`, the highest first; where to go on below, 0 for nowhere).

        Looks at no more than `blocks_max` blocks.
        Raises IndexRebuildingError: the first thing it comes to is a gap.
        """
        start = self._log_start()
        candidates: list[int] = []
        looked = 0
        for part in self._parts():
            if part.low >= below or part.high < start:
                continue
            if isinstance(part, Gap):
                if candidates or looked:
                    return candidates, min(below, part.high + 1)
                raise IndexRebuildingError(
                    "the message index is being made again from the log; ask again in a while"
                )
            if looked == blocks_max or len(candidates) == count_max:
                return candidates, min(below, part.high + 1)
            looked += 1
            wanted = count_max - len(candidates)
            positions = self._find_in(part, hash, below, wanted)
            candidates += (position for position in positions if position >= start)
            if len(positions) == wanted:
                return candidates, positions[-1]
        return candidates, 0

    def _parts(self) -> list[Buckets | BlockFile | Gap]:
        """List blocks and gaps, the newest first; their ranges do not overlap."""
        parts: list[Buckets | BlockFile | Gap] = [*self._full, *self._written, *self.gaps]
        if self._tail.count:
            parts.append(self._tail)
        return sorted(parts, key=lambda part: part.low, reverse=True)

    def _find_in(
        self, part: Buckets | BlockFile, hash: int, below: int, count_max: int
    ) -> list[int]:
        if isinstance(part, Buckets):
            return part.find(hash, below, count_max)
        try:
            return part.find(self._files, self._directory, hash, below, count_max)
        except (DamagedBlockError, OSError) as error:
            self._distrust(part, error)
            raise IndexRebuildingError(
                "the message index is damaged and is being made again; ask again in a while"
            ) from error

    def _distrust(self, block: BlockFile, error: Exception) -> None:
        log.warning("message index damaged", extra={"block": block.name, "reason": str(error)})
        self._written.remove(block)
        self._gap(block.low, block.high)

    # --- keep ----------------------------------------------------------------------------------

    def drop_before(self, start: int) -> None:
        """Drop blocks and gaps that end below `start`: nothing is there any more."""
        self._written = [block for block in self._written if block.high >= start]
        self._full = [block for block in self._full if block.high >= start]
        self.gaps = [gap for gap in self.gaps if gap.high >= start]

    def _blocks(self) -> list[BlockFile | Buckets]:
        """Return the blocks that are full."""
        return [*self._written, *self._full]

    def spill(self) -> None:
        """Write what is full, in a replay, to have it out of memory. Raises OSError."""
        for full in self._full:
            self._written.append(write_block(self._files, self._directory, full))
        self._full.clear()

    def sections(self) -> dict[str, bytes]:
        blocks = [[block.low, block.high, block.count] for block in self._blocks()]
        table = {
            "tail": [self._tail.low, self._tail.high],
            "blocks": sorted(blocks),
            "gaps": [[gap.low, gap.high] for gap in self.gaps],
        }
        return {
            INDEX_SECTION: json.dumps(table, separators=(",", ":")).encode(),
            TAIL_SECTION: self._tail.snapshot(),
        }

    def begin_write(self) -> IndexWrite:
        """Begin the write for the checkpoint that has the sections of now."""
        names = frozenset(block_name(block.low) for block in self._blocks())
        return IndexWrite(self._files, self._directory, self._full, names, self.named)

    def finish_write(self, write: IndexWrite) -> None:
        """Finish a write whose checkpoint is there."""
        self.named = write.named
        done = {id(full) for full in write.full}
        kept = {full.low for full in self._full if id(full) in done}  # others were dropped
        self._written += [block for block in write.written if block.low in kept]
        self._full = [full for full in self._full if id(full) not in done]

    def restore(self, sections: Mapping[str, bytes], log_start: int, position: int) -> None:
        """Restore it as of a checkpoint at `position`; without our sections all before is a gap."""
        self.clear()
        if INDEX_SECTION not in sections:
            if position > log_start:
                self._gap(log_start, position - 1)
            return
        table = json.loads(sections[INDEX_SECTION])
        self._tail.restore(sections[TAIL_SECTION], *table["tail"])
        for low, high in table["gaps"]:
            self._gap(low, high)
        for low, high, count in table["blocks"]:
            block = BlockFile(low, high, count)
            self._written.append(block)
            try:
                block.verify(self._files, self._directory)
            except (DamagedBlockError, OSError) as error:
                self._distrust(block, error)
        self.named = frozenset(block.name for block in self._written)

    def clear(self) -> None:
        """Forget everything, as at the beginning of the log."""
        self._tail = Buckets()
        self._full, self._written, self.gaps = [], [], []
        self.named = frozenset()
