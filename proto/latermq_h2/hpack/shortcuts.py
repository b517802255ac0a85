"""What was learned from earlier blocks of a connection, to decode the next one without reading it.

Decoding is left to right and changes nothing unless an entry is added or the table resized, so
with the table at the same generation equal bytes mean equal fields:

- whole: a block seen before;
- template: run + stable + one literal + closing. The run is the leading one-byte references (one
  for each method and timeout), the literal is the field whose value is different each time (a
  request id), stable and closing are everything between and after.

The template is used only when the literal's own lengths end exactly where the closing begins. On
any doubt nothing is returned and nothing was changed. A connection whose last block changed the
table (encoders that index every value) does not look here at all.
"""

import re
from typing import Final

from latermq_h2.hpack import huffman
from latermq_h2.hpack.fields import PSEUDO, REGULAR, Field, Gist, field
from latermq_h2.hpack.tables import STATIC, STATIC_COUNT, DynamicTable

BLOCKS_MAX: Final = 64
BLOCKS_BYTES_MAX: Final = 32 << 10  # of all their fields, as they are counted
RUNS_MAX: Final = 64
FRUITLESS_MAX: Final = 4  # after so many blocks learned for nothing,
FRUITLESS_PAUSE: Final = 16  # learn from one in so many
LITERAL: Final = 0  # first byte of a literal without indexing whose name is a literal too

_RUN: Final = re.compile(rb"[\x81-\xfe]*")


class _Template:
    """One shape of blocks."""

    __slots__ = ("closing", "closing_fields", "gist_fields", "name", "runs", "size", "stable",
                 "stable_fields")  # fmt: skip

    def __init__(
        self, name: bytes, stable: bytes, stable_fields: list[Field], closing: bytes,
        closing_fields: list[Field],
    ) -> None:  # fmt: skip
        self.name = name  # of the literal that varies
        self.stable = stable  # up to and with that name
        self.stable_fields = stable_fields
        self.closing = closing
        self.closing_fields = closing_fields
        rest = stable_fields + closing_fields
        self.size = sum(entry[2] for entry in rest)
        self.gist_fields = tuple(entry for entry in rest if entry[3] != REGULAR)
        # run → its fields and the stable ones, their size and that of the closing, gist of a block
        self.runs: dict[bytes, tuple[list[Field], int, Gist]] = {}


class Shortcuts:
    """Of one decoder; told of every block that was decoded in full."""

    def __init__(self, table: DynamicTable, list_bytes_max: int) -> None:
        self._table = table
        self._list_bytes_max = list_bytes_max
        self._settled = False  # the last block left the table alone
        self._whole: dict[bytes, tuple[list[Field], int, Gist]] = {}
        self._whole_bytes = 0
        self._template: _Template | None = None
        self._varying = b""  # how the field that varies begins: type, name length, name
        self._previous: list[bytes] = []  # fields after the run of a block before
        self._fruitless = 0  # blocks learned since one was found

    def find(self, block: bytes) -> tuple[list[Field], int, Gist] | None:
        """Find what decoding `block` would give; None when that is not known."""
        if not self._settled:
            return None
        known = self._whole.get(block)
        if known is None and self._template is not None:
            known = self._by_template(self._template, block)
        if known is not None:
            self._fruitless = 0
        return known

    def forget(self) -> None:
        """A block changed the table."""
        if self._settled:
            self._settled = False
            self._whole.clear()
            self._whole_bytes = 0
            self._template = None
            self._previous = []

    def learn(self, block: bytes, ends: list[int], decoded: tuple[list[Field], int, Gist]) -> None:
        """A block was decoded in full and left the table alone; its fields end at `ends`."""
        self._settled = True
        self._fruitless += 1
        if self._fruitless > FRUITLESS_MAX and self._fruitless % FRUITLESS_PAUSE:
            return
        fields, size, _ = decoded
        if size > min(self._list_bytes_max, BLOCKS_BYTES_MAX):
            return
        if len(self._whole) >= BLOCKS_MAX or self._whole_bytes + size > BLOCKS_BYTES_MAX:
            self._whole.clear()
            self._whole_bytes = 0
        self._whole[block] = decoded
        self._whole_bytes += size
        run = _run_of(block)
        starts = [run, *ends[run:-1]] if len(ends) > run else []
        pieces = [block[start:end] for start, end in zip(starts, ends[run:], strict=True)]
        varying = self._find_varying(pieces)
        self._previous = pieces
        if varying is None:
            return
        stable_fields = fields[run : run + varying]
        closing_fields = fields[run + varying + 1 :]
        name, _, _, kind = fields[run + varying]
        if kind == REGULAR and all(e[3] < PSEUDO for e in stable_fields + closing_fields):
            stable = b"".join(pieces[:varying]) + self._varying
            closing = b"".join(pieces[varying + 1 :])
            self._template = _Template(name, stable, stable_fields, closing, closing_fields)

    def _find_varying(self, pieces: list[bytes]) -> int | None:
        """Which of the fields after the run has a new value each time, if that shows."""
        if self._varying:
            for number, piece in enumerate(pieces):
                if piece.startswith(self._varying):
                    return number
            self._varying = b""
        if len(pieces) != len(self._previous):
            return None
        differing = [
            number
            for number, (piece, before) in enumerate(zip(pieces, self._previous, strict=True))
            if piece != before
        ]
        if len(differing) != 1:
            return None
        piece, before = pieces[differing[0]], self._previous[differing[0]]
        opening = _opening(piece)
        if not opening or not before.startswith(opening):
            return None
        self._varying = opening
        return differing[0]

    def _by_template(
        self, template: _Template, block: bytes
    ) -> tuple[list[Field], int, Gist] | None:
        run = _run_of(block)
        if not (block.startswith(template.stable, run) and block.endswith(template.closing)):
            return None
        at = run + len(template.stable)
        until = len(block) - len(template.closing)
        if at >= until:
            return None
        length = block[at]
        at += 1
        if length & 0x7F == 0x7F or at + (length & 0x7F) != until:
            return None
        value = block[at:until]
        if length & 0x80:
            try:
                value = huffman.decode(value)
            except huffman.HuffmanError:
                return None
        front = template.runs.get(block[:run]) or self._learn_run(template, block[:run])
        if front is None:
            return None
        entry = field(template.name, value)
        size = front[1] + entry[2]
        if entry[3] != REGULAR or size > self._list_bytes_max:
            return None
        return front[0] + [entry] + template.closing_fields, size, front[2]

    def _learn_run(self, template: _Template, run: bytes) -> tuple[list[Field], int, Gist] | None:
        fields: list[Field] = []
        entries = self._table.entries
        regular_seen = False
        for byte in run:
            index = byte & 0x7F
            age = index - STATIC_COUNT
            if age > len(entries):
                return None
            entry = entries[-age] if age > 0 else STATIC[index]
            if entry is None or (entry[3] == PSEUDO and regular_seen):
                return None
            regular_seen |= entry[3] != PSEUDO
            fields.append(entry)
        size = sum(entry[2] for entry in fields) + template.size
        gist = Gist(tuple(e for e in fields if e[3] != REGULAR) + template.gist_fields)
        if len(template.runs) >= RUNS_MAX:
            template.runs.clear()
        front = template.runs[run] = (fields + template.stable_fields, size, gist)
        return front


def _run_of(block: bytes) -> int:
    """How many bytes at the start of `block` are one-byte references to table entries."""
    match = _RUN.match(block)
    assert match is not None  # an empty run is one
    return match.end()


def _opening(piece: bytes) -> bytes:
    """Type, name length and name of a literal field, b"" when they are not of the simple form."""
    if len(piece) < 2 or piece[0] != LITERAL or piece[1] & 0x7F == 0x7F:
        return b""
    return piece[: 2 + (piece[1] & 0x7F)]
