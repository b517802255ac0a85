"""Timers that are not near: by minute, in memory until there are many, then in run files.

    arm → active ─freeze→ frozen ─written→ a run      (a checkpoint does it; a thread writes)
                              └─failed→ back into active

A minute is read from all three when it comes near. Cancelled entries stay where they are; their
tombstones are subtracted then. Eight bytes an entry in memory and on disk.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from latermq_broker.config.core_bounds import TimerBounds
from latermq_broker.schedule.run_file import ENTRY_BYTES, MINUTE_MS, POSITION_BITS, Entry, RunFile

Table = dict[int, "array[int]"]  # minute → packed entries


class Minutes:
    def __init__(self, bounds: TimerBounds) -> None:
        self._bounds = bounds
        self.runs: list[RunFile] = []
        self.taken_until = 0  # minutes before this one were taken; what runs hold of them is void
        self._active: Table = {}
        self._frozen: Table = {}
        self._order: list[int] = []  # heap of minutes of active and frozen; each at least once
        self._tombstones: Table = {}
        self._active_count = 0

    def add(self, minute: int, packed: int) -> None:
        if self._remove(self._tombstones, minute, packed):
            return  # it is still in place from before it was cancelled
        (self._active.get(minute) or self._begin(minute)).append(packed)
        self._active_count += 1

    def add_fresh(self, entries: Sequence[Entry]) -> list[Entry]:
        """Add (due, position) that were never here before, where the minute was not taken; return
        the others."""
        find, taken_until = self._active.get, self.taken_until
        others: list[Entry] = []
        for due_ms, position in entries:
            minute, ms = divmod(due_ms, MINUTE_MS)
            if minute < taken_until:
                others.append((due_ms, position))
                continue
            waiting = find(minute) or self._begin(minute)
            waiting.append(ms << POSITION_BITS | position >> 3)
        self._active_count += len(entries) - len(others)
        return others

    def _begin(self, minute: int) -> "array[int]":
        waiting = self._active[minute] = array("Q")
        heappush(self._order, minute)
        return waiting

    def cancel(self, minute: int, packed: int) -> None:
        """Put a tombstone on an entry, which must be here."""
        self._tombstones.setdefault(minute, array("Q")).append(packed)

    def holds(self, minute: int, packed: int) -> bool:
        return packed in self._read(minute)

    def first(self) -> int | None:
        """Find the first minute not taken that may have entries; None: no minute has any."""
        order = self._order
        while order and order[0] < self.taken_until:
            heappop(order)
        first = order[0] if order else None
        for run in self.runs:
            index = bisect_left(run.minutes, self.taken_until)
            if index < len(run.minutes) and (first is None or run.minutes[index] < first):
                first = run.minutes[index]
        return first

    def take(self, minute: int) -> tuple["array[int]", "array[int]"]:
        """Take a minute out: (its entries, those of them that are cancelled), in no order.

        Minutes are taken in order.
        """
        entries = self._stored(minute)
        self.taken_until = minute + 1
        taken = self._active.pop(minute, None)
        if taken is not None:
            self._active_count -= len(taken)
        return entries, self._tombstones.pop(minute, array("Q"))

    def in_order(self, minute_from: int) -> Iterator[tuple[int, list[int]]]:
        """Yield (minute, sorted packed entries) from a minute on, as far as it is consumed."""
        for minute, entries in self.by_minute(minute_from):
            yield minute, sorted(entries)

    def by_minute(self, minute_from: int) -> Iterator[tuple[int, "array[int]"]]:
        """Yield (minute, packed entries) unsorted; minutes that appear meanwhile may be missed."""
        minute = max(minute_from, self.taken_until)
        known = sorted({*self._active, *self._frozen})
        while True:
            at = bisect_left(known, minute)
            firsts = known[at : at + 1]
            for run in self.runs:
                index = bisect_left(run.minutes, minute)
                firsts += run.minutes[index : index + 1]
            if not firsts:
                return
            minute = min(firsts)
            yield minute, self._read(minute)
            minute += 1

    # --- checkpoints ---------------------------------------------------------------------------

    def freeze(self) -> list[tuple[int, list[bytes]]]:
        """Return what a new run is to hold, when there is enough for one; else freeze nothing."""
        if self._active_count < self._bounds.run_entries_min or self._frozen:
            return []
        self._frozen, self._active = self._active, {}
        self._active_count = 0
        return [(minute, [self._frozen[minute].tobytes()]) for minute in sorted(self._frozen)]

    def thaw(self, run: RunFile | None) -> None:
        """Take the run that was written and opened; None: keep what was frozen in memory."""
        frozen, self._frozen = self._frozen, {}
        if run is not None:
            self.runs.append(run)
            return
        for minute, entries in frozen.items():
            if minute < self.taken_until:
                continue
            waiting = self._active.setdefault(minute, array("Q"))
            waiting.extend(entries)
            self._active_count += len(entries)
        self._order = sorted({*self._active})

    def snapshot(self) -> tuple[bytes, bytes]:
        """Encode (active entries, tombstones), each `minute u64 | count u64 | packed …` repeated.

        What is frozen belongs to the run that is being written.
        """
        return dump(self._active), dump(self._tombstones)

    def restore(self, active: bytes, tombstones: bytes, runs: list[RunFile], until: int) -> None:
        """Restore what a snapshot holds; minutes before `until` were taken when it was made."""
        self.runs = runs
        self.taken_until = until
        self._active = load(active)
        self._active_count = sum(map(len, self._active.values()))
        self._tombstones = load(tombstones)
        self._order = list(self._active)
        heapify(self._order)

    def spent_runs(self) -> list[RunFile]:
        """Forget the runs without a minute still to come and return them; they are not deleted."""
        spent = [run for run in self.runs if not run.count_from(self.taken_until)]
        self.runs = [run for run in self.runs if run not in spent]
        return spent

    def merge_wanted(self) -> list[str]:
        """Name the runs that should become one; empty while they are few."""
        if len(self.runs) < self._bounds.merge_runs_min:
            return []
        return [run.name for run in self.runs]

    def replace(self, names: Sequence[str], merged: RunFile) -> None:
        """Put `merged` in place of the runs of these names, which it holds; close those."""
        replaced = set(names)
        for run in self.runs:
            if run.name in replaced:
                run.close()
        self.runs = [merged, *(run for run in self.runs if run.name not in replaced)]

    def _stored(self, minute: int) -> "array[int]":
        entries = array("Q")
        if minute < self.taken_until:
            return entries
        for table in (self._active, self._frozen):
            entries.extend(table.get(minute, ()))
        for run in self.runs:
            entries.frombytes(run.packed(minute))
        return entries

    def _read(self, minute: int) -> "array[int]":
        entries = self._stored(minute)
        tombstones = self._tombstones.get(minute)
        if tombstones:
            tombstoned = set(tombstones)
            entries = array("Q", (entry for entry in entries if entry not in tombstoned))
        return entries

    @staticmethod
    def _remove(table: Table, minute: int, packed: int) -> bool:
        entries = table.get(minute)
        if entries is None or packed not in entries:
            return False
        entries.remove(packed)
        return True


def dump(table: Table) -> bytes:
    """Encode a table: `minute u64 | count u64 | packed …`, repeated, minutes rising."""
    parts = []
    for minute in sorted(table):
        entries = table[minute]
        if entries:
            parts.append(array("Q", (minute, len(entries))).tobytes())
            parts.append(entries.tobytes())
    return b"".join(parts)


def load(section: bytes) -> Table:
    table: Table = {}
    at = 0
    while at < len(section):
        head = array("Q")
        head.frombytes(section[at : at + 16])
        minute, count = head
        at += 16
        entries = table[minute] = array("Q")
        entries.frombytes(section[at : at + count * ENTRY_BYTES])
        at += count * ENTRY_BYTES
    return table
