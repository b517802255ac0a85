"""The decoder of one connection's header blocks.

`decode` gives every block its fields; blocks that arrive again, or that differ in one literal, are
put together from what was learned (`shortcuts`). A block that cannot be decoded leaves the table
in an unknown state: its connection must end.
"""

from typing import Final, TypeAlias

from latermq_h2.hpack import huffman
from latermq_h2.hpack.fields import MISORDERED, PSEUDO, Field, Gist, field
from latermq_h2.hpack.shortcuts import Shortcuts
from latermq_h2.hpack.tables import STATIC, STATIC_COUNT, DynamicTable

TABLE_BYTES: Final = 4_096  # SETTINGS_HEADER_TABLE_SIZE, its default
INTEGER_MAX: Final = 1 << 31
INTEGER_BYTES_MAX: Final = 5  # after the prefix
GISTS_MAX: Final = 64
GIST_BYTES_MAX: Final = 16 << 10  # of all of a connection, as fields are counted
LITERALS_READ: Final = 4  # times as many as fields may be, so that the table stays right
FIELDS_READ: Final = 8  # likewise in all, looked at after each stride
STRIDE_BYTES: Final = 16 << 10
FIELDS_PER_WORK: Final = 8  # that are in the table already
BYTES_PER_WORK: Final = 64

Decoded: TypeAlias = tuple[list[Field], int, Gist]  # fields, counted size of the list, gist


class HpackError(ValueError):
    """COMPRESSION_ERROR: the connection cannot go on."""


class TooManyFieldsError(HpackError):
    """Far more fields than there may be: the rest is not read."""


class Decoder:
    """Header blocks in the order of their arrival.

    Args:
        list_bytes_max: of a block whose list is larger, `decode` returns the first fields only; the
            size tells.
        fields_max: of a block with more the size is above `list_bytes_max` too; 0: any number.

    Fields:
        work: what blocks took that were not known: their literals, and a part of their bytes; who
            counts it sets it back to 0.
    """

    def __init__(
        self, list_bytes_max: int, table_bytes: int = TABLE_BYTES, fields_max: int = 0
    ) -> None:
        self.work = 0
        self._fields_max = fields_max
        self._table = DynamicTable(table_bytes)
        self._table_bytes_max = table_bytes
        self._list_bytes_max = list_bytes_max
        self._shortcuts = Shortcuts(self._table, list_bytes_max)
        self._gists: dict[tuple[Field, ...], Gist] = {}
        self._gist_bytes = 0

    def decode(self, block: bytes) -> Decoded:
        """Fields of a block.

        Raises:
            HpackError: the block is not HPACK, or refers to what is not in the tables.
            TooManyFieldsError: it has more than LITERALS_READ times `fields_max` literals, or is
                large and has more than FIELDS_READ times as many fields.
        """
        known = self._shortcuts.find(block)
        if known is not None:
            return known
        generation = self._table.generation
        try:
            fields, ends, size = self._fields(block)
        except IndexError:
            raise HpackError("a header block ends inside a field") from None
        except huffman.HuffmanError as error:
            raise HpackError(str(error)) from None
        decoded = (fields, size, self._gist(fields))
        if generation == self._table.generation:
            self._shortcuts.learn(block, ends, decoded)
        else:
            self._shortcuts.forget()
        return decoded

    def _fields(self, block: bytes) -> tuple[list[Field], list[int], int]:
        """Fields up to the limit of the list, where each field of the block ends, counted size."""
        fields: list[Field] = []
        ends: list[int] = []
        size = position = literals = 0
        stop = len(block)
        table = self._table
        size_max = self._list_bytes_max
        literals_max = LITERALS_READ * self._fields_max or stop
        stride = min(stop, STRIDE_BYTES)
        while position < stop:
            if position >= stride:
                stride = self._next_stride(stride, stop, len(ends))
            first = block[position]
            position += 1
            if first & 0x80:
                index = first & 0x7F
                if index == 0x7F:
                    index, position = _integer(block, position, 0x7F)
                entry = self._entry(index)
            elif first & 0x40:
                entry, position = self._literal(block, position, first & 0x3F, 0x3F)
                table.add(entry)
                literals += 1
            elif first & 0x20:
                if ends:
                    raise HpackError("a table size update inside a block")
                update = first & 0x1F
                if update == 0x1F:
                    update, position = _integer(block, position, 0x1F)
                if update > self._table_bytes_max:
                    raise HpackError("a table size update beyond our setting")
                table.resize(update)
                literals += 1
                if literals > literals_max:
                    raise TooManyFieldsError("a header block of far too many size updates")
                continue
            else:  # without indexing, or never indexed: the same to us
                entry, position = self._literal(block, position, first & 0x0F, 0x0F)
                literals += 1
            if literals > literals_max:
                raise TooManyFieldsError("a header block of far too many new fields")
            size += entry[2]
            if size <= size_max:
                fields.append(entry)
            ends.append(position)
        self.work += literals + len(ends) // FIELDS_PER_WORK + stop // BYTES_PER_WORK + 1
        if self._fields_max and len(ends) > self._fields_max:
            size = max(size, size_max + 1)
        return fields, ends, size

    def _next_stride(self, stride: int, stop: int, count: int) -> int:
        """How far to read on in a large block, unless it is made of references to the table."""
        if self._fields_max and count > FIELDS_READ * self._fields_max:
            raise TooManyFieldsError("a header block of far too many fields")
        return min(stop, stride + STRIDE_BYTES)

    def _literal(self, block: bytes, position: int, index: int, full: int) -> tuple[Field, int]:
        if index == full:
            index, position = _integer(block, position, full)
        if index:
            name = self._entry(index)[0]
        else:
            name, position = _string(block, position)
        value, position = _string(block, position)
        return field(name, value), position

    def _entry(self, index: int) -> Field:
        if index > STATIC_COUNT:
            entries = self._table.entries
            age = index - STATIC_COUNT  # 1: the newest
            if age > len(entries):
                raise HpackError(f"index {index} is past the table")
            return entries[-age]
        entry = STATIC[index]
        if entry is None:
            raise HpackError("index 0")
        return entry

    def _gist(self, fields: list[Field]) -> Gist:
        telling = []
        regular_seen = False
        for entry in fields:
            kind = entry[3]
            if kind == PSEUDO:
                telling.append(MISORDERED if regular_seen else entry)
            else:
                regular_seen = True
                if kind:
                    telling.append(entry)
        key = tuple(telling)
        gist = self._gists.get(key)
        if gist is None:
            gist = Gist(key)
            size = sum(entry[2] for entry in key)
            if len(self._gists) >= GISTS_MAX or self._gist_bytes + size > GIST_BYTES_MAX:
                self._gists.clear()
                self._gist_bytes = 0
            if size <= GIST_BYTES_MAX:
                self._gists[key] = gist
                self._gist_bytes += size
        return gist


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """The rest of an integer whose prefix was full; value and the position after it."""
    for count in range(INTEGER_BYTES_MAX):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value > INTEGER_MAX:
                break
            return value, position
    raise HpackError("an integer out of bounds")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    first = block[position]
    position += 1
    length = first & 0x7F
    if length == 0x7F:
        length, position = _integer(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise HpackError("a string runs past its block")
    text = block[position:end]
    return (huffman.decode(text) if first & 0x80 else text), end
