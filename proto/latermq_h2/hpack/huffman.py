"""The Huffman code of RFC 7541 appendix B: decoding only, a byte at a time.

The code is canonical: shorter codes first, equal lengths in the order of the symbols. So the table
of lengths is the whole code. A state of the automaton is an inner node of its tree; a row says for
each next byte which symbols it completes and which node it ends in. Rows are built when first
entered: most text needs a few of the 256.

Most strings are new in each call (ids, times, signatures) and read by nobody: of those only the
length counts, and that they can be decoded. To measure one takes an eighth of the instructions that
decoding it takes (compiled; docs/adr/0029).
"""

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from mypy_extensions import i64

EOS: Final = 256  # must not appear; its leading bits are the padding

_SYMBOLS_BY_LENGTH: Final[tuple[tuple[int, bytes], ...]] = (
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b'!"()?'),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\x00$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, b"\\\xc3\xd0"),
    (20, bytes.fromhex("80 82 83 a2 b8 c2 e0 e2")),
    (21, bytes.fromhex("99 a1 a7 ac b0 b1 b3 d1 d8 d9 e3 e5 e6")),
    (22, bytes.fromhex(
        "81 84 85 86 88 92 9a 9c a0 a3 a4 a9 aa ad b2 b5 b9 ba bb bd be c4 c6 e4 e8 e9"
    )),
    (23, bytes.fromhex(
        "01 87 89 8a 8b 8c 8d 8f 93 95 96 97 98 9b 9d 9e a5 a6 a8 ae af b4 b6 b7 bc bf c5 e7 ef"
    )),
    (24, bytes.fromhex("09 8e 90 91 94 9f ab ce d7 e1 ec ed")),
    (25, bytes.fromhex("c7 cf ea eb")),
    (26, bytes.fromhex("c0 c1 c8 c9 ca cd d2 d5 da db ee f0 f2 f3 ff")),
    (27, bytes.fromhex("cb cc d3 d4 d6 dd de df f1 f4 f5 f6 f7 f8 fa fb fc fd fe")),
    (28, bytes.fromhex(
        "02 03 04 05 06 07 08 0b 0c 0e 0f 10 11 12 13 14 15 17 18 19 1a 1b 1c 1d 1e 1f 7f dc f9"
    )),
    (30, b"\n\r\x16"),  # and EOS, the last of all
)  # fmt: skip

PADDING_BITS_MAX: Final = 7
CACHED_TEXTS_MAX: Final = 1_024
CACHED_TEXT_BYTES_MAX: Final = 128
NO_FIELD: Final = b"\0\n\r"  # what a field's value must not hold (RFC 9113 section 8.2.1)

Row: TypeAlias = list[tuple[int, bytes] | None]  # next byte → node after it, symbols it completes

# A row of measuring: 256 nodes, then for each next byte what it adds.
_ADDED: Final = 3  # symbols
_FORBIDDEN: Final = 4  # one of NO_FIELD among them
_BROKEN: Final = 8  # EOS


class HuffmanError(ValueError):
    """Not a Huffman string: EOS inside, or padding that is too long or not all ones."""


class Automaton:
    """The tree of the code and the rows derived from it so far."""

    def __init__(self) -> None:
        # children[node] = (for a 0 bit, for a 1 bit): a node, or -1 - symbol for a leaf
        self._children: list[list[int]] = [[0, 0]]
        code = length = 0
        for length_next, symbols in _SYMBOLS_BY_LENGTH:
            code <<= length_next - length
            length = length_next
            for symbol in symbols:
                self._plant(code, length, symbol)
                code += 1
        self._plant(code, length, EOS)
        assert code == (1 << length) - 1
        assert len(self._children) == EOS
        self._rows: list[Row | None] = [None] * EOS
        self._measures: list[bytes | None] = [None] * EOS
        self._final = self._ends_of_text()

    def decode(self, data: bytes) -> bytes:
        """Decode the text behind `data`. Raises HuffmanError."""
        node = 0
        symbols_read = []
        rows = self._rows
        for byte in data:
            step = (rows[node] or self._row(node))[byte]
            if step is None:
                raise HuffmanError("EOS in a string")
            node, symbols = step
            symbols_read.append(symbols)
        if node not in self._final:
            raise HuffmanError("a string ends inside a symbol or in wrong padding")
        return b"".join(symbols_read)

    def measure(self, data: bytes) -> int:
        """Count the bytes of the text behind `data`: below 0, -1 - the count, with one of NO_FIELD.

        Raises HuffmanError.
        """
        node: i64 = 0
        count: i64 = 0
        seen: i64 = 0
        position: i64 = 0
        stop: i64 = len(data)
        measures = self._measures
        while position < stop:
            row = measures[node]
            if row is None:
                row = self._measure(node)
            byte: i64 = data[position]
            position += 1
            added: i64 = row[byte + 256]
            node = row[byte]
            seen |= added
            count += added & _ADDED
        if seen & _BROKEN:
            raise HuffmanError("EOS in a string")
        if node not in self._final:
            raise HuffmanError("a string ends inside a symbol or in wrong padding")
        return -1 - count if seen & _FORBIDDEN else count

    def _plant(self, code: int, length: int, symbol: int) -> None:
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            below = self._children[node][bit]
            if below == 0:
                self._children.append([0, 0])
                below = self._children[node][bit] = len(self._children) - 1
            node = below
        self._children[node][code & 1] = -1 - symbol

    def _row(self, start: int) -> Row:
        row: Row = []
        for byte in range(256):
            node = start
            symbols = bytearray()
            for shift in range(7, -1, -1):
                node = self._children[node][byte >> shift & 1]
                if node == -1 - EOS:
                    break
                if node < 0:
                    symbols.append(-1 - node)
                    node = 0
            row.append(None if node < 0 else (node, bytes(symbols)))
        self._rows[start] = row
        return row

    def _measure(self, start: int) -> bytes:
        nodes, added = bytearray(256), bytearray([_BROKEN]) * 256
        for byte, step in enumerate(self._rows[start] or self._row(start)):
            if step is not None:
                nodes[byte], symbols = step
                forbidden = any(symbol in NO_FIELD for symbol in symbols)
                added[byte] = len(symbols) | (_FORBIDDEN if forbidden else 0)
        row = self._measures[start] = bytes(nodes + added)
        return row

    def _ends_of_text(self) -> frozenset[int]:
        """Find the nodes in which a text may end: the root, and up to seven one bits below it."""
        ends = [0]
        for _ in range(PADDING_BITS_MAX):
            ends.append(self._children[ends[-1]][1])
        return frozenset(ends)


_AUTOMATON: Final = Automaton()
_texts: dict[bytes, bytes] = {}  # shared by all connections: the code has no state


def decode(data: bytes) -> bytes:
    """Decode the text behind a Huffman string. Raises HuffmanError."""
    text = _texts.get(data)
    if text is None:
        text = _AUTOMATON.decode(data)
        if len(data) <= CACHED_TEXT_BYTES_MAX:
            if len(_texts) >= CACHED_TEXTS_MAX:
                _texts.clear()
            _texts[data] = text
    return text


def measure(data: bytes) -> int:
    """Count the bytes of the text behind a Huffman string, as `Automaton.measure` does."""
    return _AUTOMATON.measure(data)
