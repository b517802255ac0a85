"""The decoder of one connection's header blocks.

`decode` gives every block its fields. Most literals of a block stood in an earlier one, byte for
byte; their fields are kept, so that they are made and checked once. A block that cannot be decoded
leaves the table in an unknown state: its connection must end.
"""

from typing import Final, TypeAlias

from latermq_h2.hpack import huffman
from latermq_h2.hpack.fields import MISORDERED, PSEUDO, SEMANTIC, Field, Gist, coded_field, field
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
LITERALS_KEPT: Final = 32  # of those that no table keeps,
LITERAL_BYTES_KEPT: Final = 512  # each this long at most

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
        work: what blocks took: their literals that were not known, a part of the bytes of those,
            and a little for all fields; who counts it sets it back to 0.
    """

    def __init__(
        self, list_bytes_max: int, table_bytes: int = TABLE_BYTES, fields_max: int = 0
    ) -> None:
        self.work = 0
        self._fields_max = fields_max
        self._table = DynamicTable(table_bytes)
        self._table_bytes_max = table_bytes
        self._list_bytes_max = list_bytes_max
        self._literals: dict[bytes, Field] = {}  # by their bytes
        self._gists: dict[tuple[Field, ...], Gist] = {}
        self._gist_bytes = 0
        self._telling: list[Field] = []  # of the block before, whose gist is most often the next's:
        self._last_gist = Gist(())  # found without a hash of them all

    def decode(self, block: bytes) -> Decoded:
        """Decode the fields of a block.

        Raises:
            HpackError: the block is not HPACK, or refers to what is not in the tables.
            TooManyFieldsError: it has more than LITERALS_READ times `fields_max` literals, or is
                large and has more than FIELDS_READ times as many fields.
        """
        try:
            fields, size = self._fields(block)
        except IndexError:
            raise HpackError("a header block ends inside a field") from None
        except huffman.HuffmanError as error:
            raise HpackError(str(error)) from None
        return fields, size, self._gist(fields)

    def _fields(self, block: bytes) -> tuple[list[Field], int]:
        """Read the fields up to the limit of the list, and the counted size of all."""
        fields: list[Field] = []
        size = position = literals = count = 0
        stop = len(block)
        table = self._table
        size_max = self._list_bytes_max
        literals_max = LITERALS_READ * self._fields_max or stop
        stride = min(stop, STRIDE_BYTES)
        while position < stop:
            if position >= stride:
                stride = self._next_stride(stride, stop, count)
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
                if count:
                    raise HpackError("a table size update inside a block")
                update = first & 0x1F
                if update == 0x1F:
                    update, position = _integer(block, position, 0x1F)
                if update > self._table_bytes_max:
                    raise HpackError("a table size update beyond our setting")
                table.resize(update)
                literals += 1
                self.work += 1
                if literals > literals_max:
                    raise TooManyFieldsError("a header block of far too many size updates")
                continue
            else:  # without indexing, or never indexed: the same to us
                entry, position = self._unindexed(block, position, first & 0x0F)
                literals += 1
            if literals > literals_max:
                raise TooManyFieldsError("a header block of far too many new fields")
            size += entry[2]
            if size <= size_max:
                fields.append(entry)
            count += 1
        self.work += count // FIELDS_PER_WORK + 1
        if self._fields_max and count > self._fields_max:
            size = max(size, size_max + 1)
        return fields, size

    def _next_stride(self, stride: int, stop: int, count: int) -> int:
        """Find how far to read on in a large block, unless it is all references to the table."""
        if self._fields_max and count > FIELDS_READ * self._fields_max:
            raise TooManyFieldsError("a header block of far too many fields")
        return min(stop, stride + STRIDE_BYTES)

    def _literal(self, block: bytes, position: int, index: int, full: int) -> tuple[Field, int]:
        start = position
        if index == full:
            index, position = _integer(block, position, full)
        if index:
            name = self._entry(index)[0]
        else:
            is_coded = block[position] & 0x80
            name, position = _string(block, position)
            if is_coded:
                name = huffman.decode(name)
        is_coded = block[position] & 0x80
        value, position = _string(block, position)
        self.work += 1 + (position - start) // BYTES_PER_WORK
        return (coded_field(name, value) if is_coded else field(name, value)), position

    def _unindexed(self, block: bytes, start: int, index: int) -> tuple[Field, int]:
        """Read a literal that no table is to keep: most often one that an earlier block had.

        Its name is there too, or of the static table: such bytes mean the same whatever the other
        table is. Kept, they make a send 1.7 us cheaper, of 31 (compiled, headers of the official
        Python client; docs/transport.md).
        """
        if index == 0x0F:
            return self._literal(block, start, index, 0x0F)
        end = start if index else _string_end(block, start)
        if end < len(block):
            end = _string_end(block, end)
        piece = block[start - 1 : end]
        known = self._literals.get(piece)
        if known is not None:
            return known, end
        entry, end = self._literal(block, start, index, 0x0F)
        if len(piece) <= LITERAL_BYTES_KEPT:
            if len(self._literals) >= LITERALS_KEPT:
                self._literals.clear()
            self._literals[piece] = entry
        return entry, end

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
        telling: list[Field] = []
        regular_seen = False
        for entry in fields:
            kind = entry[3]
            if kind == PSEUDO:
                telling.append(MISORDERED if regular_seen else entry)
            else:
                regular_seen = True
                if kind >= SEMANTIC:
                    telling.append(entry)
        if telling == self._telling:
            return self._last_gist
        key = tuple(telling)
        gist = self._gists.get(key)
        if gist is None:
            gist = Gist(key)
            size = sum(entry[2] for entry in key)
            if size > GIST_BYTES_MAX:
                return gist
            if len(self._gists) >= GISTS_MAX or self._gist_bytes + size > GIST_BYTES_MAX:
                self._gists.clear()
                self._gist_bytes = 0
            self._gists[key] = gist
            self._gist_bytes += size
        self._telling, self._last_gist = telling, gist
        return gist


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """Read the rest of an integer whose prefix was full: its value and the position after it."""
    for count in range(INTEGER_BYTES_MAX):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value > INTEGER_MAX:
                break
            return value, position
    raise HpackError("an integer out of bounds")


def _string_end(block: bytes, position: int) -> int:
    """Find where the string at `position` ends, or would end behind its block."""
    length = block[position] & 0x7F
    position += 1
    if length == 0x7F:
        length, position = _integer(block, position, 0x7F)
    return position + length


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """Read the string at `position` as it came, and where it ends."""
    length = block[position] & 0x7F
    position += 1
    if length == 0x7F:
        length, position = _integer(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise HpackError("a string runs past its block")
    return block[position:end], end
