"""What a backup consists of, as a value and as the JSON of its manifest.

A manifest is input: whoever can write to the shelf may have written it, with a digest that fits.
So its bytes are counted before they are parsed, and each field is held against its type and its
bounds before anything is read, made or allocated for it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, Final, NamedTuple

from latermq_cli.terminal.failures import CommandError, RefusedError

FORMAT: Final = 1
PIECE_BYTES: Final = 16 << 20
PIECES_MAX: Final = 300_000  # pieces of a backup, some 4.5 TiB of log
MANIFEST_BYTES_MAX: Final = 32 << 20  # bytes of a manifest; so many pieces and segments take 31 MiB
_VALUES_MAX: Final = 8 * PIECES_MAX  # JSON values of a manifest, by the commas and brackets in it
_OBJECTS_MAX: Final = 64  # of them objects; a mark, which is a text, may have braces, too
_POSITION_MAX: Final = 1 << 62  # bytes of a log since it began
_TAKEN_AT_MS_MAX: Final = 253_402_300_799_999  # the year 9999
_U64_MAX: Final = (1 << 64) - 1
_TEXT_MAX: Final = 1_024  # characters of what a broker calls itself
_SHARD_MARK_MAX: Final = 4_096  # characters
_DIGITS: Final = 32
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")
BACKUP_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z(-[0-9]{1,9})?")
_SHOWN_CHARACTERS_MAX: Final = 60  # of a wrong value, in an error


class Piece(NamedTuple):
    begin: int  # position in the log
    length: int
    digest: str

    @property
    def end(self) -> int:
        return self.begin + self.length

    @property
    def name(self) -> str:
        return f"{self.begin:020d}-{self.length}-{self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One backup: the log from its first segment's base up to `position`.

    Raises:
        ValueError: a field is not of its type or out of its bounds, or the segments and pieces are
            not those of a log in a row.
    """

    name: str
    taken_at_ms: int  # by the broker's clock, when the log was cut
    version: str  # of the broker
    broker: str
    log_uuid: str
    position: int
    newest: tuple[int, int]  # position and checksum of the last record
    repairs: int
    shard_mark: str
    segments: tuple[tuple[int, int], ...]  # (base, size)
    pieces: tuple[Piece, ...]  # the first of the grid; all of them in a backup that is whole
    format: int = FORMAT

    def __post_init__(self) -> None:
        _require_text("name", self.name, _TEXT_MAX)
        if not BACKUP_NAME.fullmatch(self.name):
            raise ValueError(f"name is {_shown(self.name)}")
        _require_number("taken_at_ms", self.taken_at_ms, _TAKEN_AT_MS_MAX)
        _require_text("version", self.version, _TEXT_MAX)
        _require_text("broker", self.broker, _TEXT_MAX)
        _require_text("shard_mark", self.shard_mark, _SHARD_MARK_MAX)
        _require_text("log_uuid", self.log_uuid, _DIGITS)
        if not _DIGEST.fullmatch(self.log_uuid):
            raise ValueError(f"log_uuid is {_shown(self.log_uuid)}")
        _require_number("position", self.position, _POSITION_MAX)
        _require_numbers("newest", self.newest, (_POSITION_MAX, _U64_MAX))
        _require_number("repairs", self.repairs, _U64_MAX)
        _require_number("format", self.format, FORMAT)
        self._require_segments()
        self._require_pieces()

    def _require_segments(self) -> None:
        _require_list("segments", self.segments)
        end = -1
        for segment in self.segments:
            _require_numbers("a segment", segment, (_POSITION_MAX, _POSITION_MAX))
            base, size = segment
            if not size or end not in (-1, base) or base >= self.position:
                raise ValueError(f"segment {base} of {size} bytes is not the next of the log")
            end = base + size
        if self.position > end:
            raise ValueError(f"position is {self.position}, its segments end at {end}")

    def _require_pieces(self) -> None:
        if self.piece_count > PIECES_MAX:
            raise ValueError(
                f"its log takes {self.piece_count} pieces, at most {PIECES_MAX} can be"
            )
        _require_list("pieces", self.pieces)
        if len(self.pieces) > self.piece_count:
            raise ValueError(f"{len(self.pieces)} pieces, its log takes {self.piece_count}")
        for piece, (begin, end) in zip(
            self.pieces, grid(self.segments, self.position), strict=False
        ):
            _require_list("a piece", piece)
            _require_numbers("a piece", piece[:2], (_POSITION_MAX, PIECE_BYTES))
            if len(piece) != len(Piece._fields) or piece[:2] != (begin, end - begin):
                raise ValueError(f"the piece from {piece[0]} is not the one from {begin} to {end}")
            _require_text("a digest", piece[2], _DIGITS)
            if not _DIGEST.fullmatch(piece[2]):
                raise ValueError(f"a digest is {_shown(piece[2])}")

    @property
    def log_bytes(self) -> int:
        return self.position - self.segments[0][0]

    @property
    def piece_count(self) -> int:
        """Count the pieces that a whole backup of this log has."""
        return sum(
            -(-min(size, self.position - base) // PIECE_BYTES) for base, size in self.segments
        )

    @property
    def is_whole(self) -> bool:
        """Tell whether its pieces are the whole log, up to `position`."""
        return len(self.pieces) == self.piece_count

    def encode(self) -> bytes:
        fields = asdict(self)
        text = json.dumps(fields, sort_keys=True)
        return json.dumps({"backup": fields, "digest": digest_of(text.encode())}).encode()


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Read a manifest.

    Args:
        name: of the backup, as its file says; for errors.
    Raises:
        CommandError: it is damaged, or not what a backup can be.
        RefusedError: of a newer version.
    """
    try:
        return _decoded(data, name)
    except (ValueError, RecursionError) as error:
        reason = "too deep" if isinstance(error, RecursionError) else error
        raise CommandError(f"the manifest of backup {name} is damaged: {reason}") from None


def _decoded(data: bytes, name: str) -> Manifest:
    """Raises ValueError, RecursionError, RefusedError."""
    values, objects = data.count(b",") + data.count(b"["), data.count(b"{")
    if len(data) > MANIFEST_BYTES_MAX or values > _VALUES_MAX or objects > _OBJECTS_MAX:
        raise ValueError(
            f"it has {len(data)} bytes, some {values} values and {objects} objects; at most "
            f"{MANIFEST_BYTES_MAX}, {_VALUES_MAX} and {_OBJECTS_MAX} are read"
        )
    try:
        outer = json.loads(data)
    except ValueError:  # its words may be the file's
        raise ValueError("it is not JSON") from None
    value = outer.get("backup") if isinstance(outer, dict) else None
    if not isinstance(value, dict):
        raise ValueError("it names no backup")
    _require_number("format", value.get("format"), _U64_MAX)
    if value["format"] > FORMAT:
        raise RefusedError(
            f"backup {name} has format {value['format']}, this version reads up to {FORMAT}"
        )
    manifest = _manifest(value)
    if outer.get("digest") != digest_of(json.dumps(value, sort_keys=True).encode()):
        raise ValueError("it does not match its digest")
    return manifest


def _manifest(value: Mapping[str, Any]) -> Manifest:
    """Make the value of a manifest's fields. Raises ValueError."""
    expected = {field.name for field in fields(Manifest)}
    if value.keys() != expected:
        odd = sorted(value.keys() ^ expected)[0]
        raise ValueError(f"field {_shown(odd)} is missing, or not one of a backup")
    lists = {name: _tuples(name, value[name]) for name in ("segments", "pieces")}
    _require_list("newest", value["newest"])
    pieces = tuple(
        Piece(*piece) if len(piece) == len(Piece._fields) else piece for piece in lists["pieces"]
    )
    return Manifest(**{**value, **lists, "newest": tuple(value["newest"]), "pieces": pieces})


def _tuples(name: str, value: Any) -> tuple[Any, ...]:
    _require_list(name, value)
    for each in value:
        _require_list(f"one of {name}", each)
    return tuple(tuple(each) for each in value)


def _require_list(name: str, value: Any) -> None:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is {_shown(value)}, no list")
    if not value and name == "segments":
        raise ValueError("it has no segments")


def _require_numbers(name: str, value: Any, most: Sequence[int]) -> None:
    _require_list(name, value)
    if len(value) != len(most):
        raise ValueError(f"{name} has {len(value)} numbers, not {len(most)}")
    for number, bound in zip(value, most, strict=True):
        _require_number(name, number, bound)


def _require_number(name: str, value: Any, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {_shown(value)}, no whole number from 0 to {most}")


def _require_text(name: str, value: Any, characters_max: int) -> None:
    if not isinstance(value, str) or len(value) > characters_max:
        raise ValueError(f"{name} is {_shown(value)}, no text of at most {characters_max} letters")


def _shown(value: Any) -> str:
    """Write the beginning of a value; of what holds others only what it is."""
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    if type(value) is int and value.bit_length() > 4 * _SHOWN_CHARACTERS_MAX:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        value = value[: _SHOWN_CHARACTERS_MAX + 1]
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"


def digest_of(data: bytes | bytearray) -> str:
    return sha256(data).hexdigest()[:_DIGITS]


def grid(segments: Sequence[tuple[int, int]], position: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the pieces of a log up to a position."""
    for base, size in segments:
        for begin in range(base, min(base + size, position), PIECE_BYTES):
            yield begin, min(begin + PIECE_BYTES, base + size, position)
