"""Backups that somebody else wrote: bounds before work, regular files only, no word obeyed.

Each manifest has a digest that fits: who can write to a shelf can seal what he writes.
"""

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from latermq_cli.backup import manifest as manifests
from latermq_cli.backup.manifest import decode_manifest, digest_of, grid
from latermq_cli.terminal.failures import CommandError
from support.cli_rig import CliRig

CPU_S_MAX = 15.0
HUGE = 1 << 61
ESCAPE = "\x1b[2J"
SEGMENT = 1 << 16


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


@pytest.fixture
def shelf(cli: CliRig, tmp_path: Path) -> Path:
    """A shelf with one backup that is whole."""
    cli.send_message("first", body=b"x" * 1_000)
    cli.ok("backup", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


def cpu_s() -> float:
    return sum(os.times()[:2])


def the_manifest(shelf: Path) -> Path:
    (path,) = (shelf / "backups").iterdir()
    return path


def the_piece(shelf: Path) -> Path:
    return sorted((shelf / "log").iterdir())[0]


def sealed(fields: dict[str, Any]) -> str:
    digest = digest_of(json.dumps(fields, sort_keys=True).encode())
    return json.dumps({"backup": fields, "digest": digest})


def rewrite(shelf: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(the_manifest(shelf).read_bytes())["backup"]
    change(fields)
    the_manifest(shelf).write_text(sealed(fields))


def refused_everywhere(cli: CliRig, shelf: Path, tmp_path: Path, *, code: int = 1) -> str:
    """What `verify` says; `list` and `restore` refuse, too, in one line, soon and without bytes."""
    began_s = cpu_s()
    said = ""
    data = tmp_path / "data"
    for words in (("backup", "list", shelf), ("restore", shelf, data), ("backup", "verify", shelf)):
        said = cli.refused(*map(str, words), code=code)
        assert "unexpected" not in said
        assert ESCAPE not in said
        assert len(said) < 1_000
    assert not data.exists()
    assert cpu_s() - began_s < CPU_S_MAX
    return said


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a position beyond the log": lambda of: of.update(position=HUGE),
    "one segment of 2^61 bytes": lambda of: of.update(position=HUGE, segments=[[0, HUGE]]),
    "200,000 segments": lambda of: of.update(
        position=200_000 * SEGMENT, segments=[[at * SEGMENT, SEGMENT] for at in range(200_000)]
    ),
    "400,000 segments": lambda of: of.update(
        position=400_000 * SEGMENT, segments=[[at * SEGMENT, SEGMENT] for at in range(400_000)]
    ),
    "segments of no bytes": lambda of: of.update(segments=[[0, 0]] * 10),
    "segments that overlap": lambda of: of.update(segments=[*of["segments"], *of["segments"]]),
    "segments backwards": lambda of: of.update(segments=[[64, 64], [0, 64]]),
    "a negative base": lambda of: of.update(segments=[[-SEGMENT, HUGE]]),
    "no segments": lambda of: of.update(segments=[]),
    "pieces twice": lambda of: of.update(pieces=of["pieces"] * 2),
    "a piece of another place": lambda of: of["pieces"][0].__setitem__(0, 8),
    "a piece outside the shelf": lambda of: of["pieces"][0].__setitem__(2, "../../../etc/passwd"),
    "a piece of four fields": lambda of: of["pieces"][0].append(1),
    "a piece that is none": lambda of: of["pieces"].__setitem__(0, None),
    "a newest record of one number": lambda of: of.update(newest=[1]),
    "a time beyond the calendar": lambda of: of.update(taken_at_ms=1 << 80),
    "a time that is no number": lambda of: of.update(taken_at_ms=float("nan")),
    "a flag for a number": lambda of: of.update(repairs=True),
    "a name that is a path": lambda of: of.update(name="../../x"),
    "a name that is obeyed": lambda of: of.update(name=ESCAPE),
    "a broker that is a list": lambda of: of.update(broker=[ESCAPE]),
    "a version of a mebibyte": lambda of: of.update(version="v" * (1 << 20)),
    "a mark that is an object": lambda of: of.update(shard_mark={}),
    "a uuid that is none": lambda of: of.update(log_uuid=ESCAPE),
    "a field too many": lambda of: of.update({ESCAPE: 1}),
    "a field too few": lambda of: of.pop("repairs"),
    "a format that is a text": lambda of: of.update(format=ESCAPE),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_a_manifest_says_is_held_against_its_bounds(
    cli: CliRig, shelf: Path, tmp_path: Path, lie: Callable[[dict[str, Any]], object]
) -> None:
    rewrite(shelf, lie)
    assert "the manifest of backup" in refused_everywhere(cli, shelf, tmp_path)


@pytest.mark.parametrize("name", ["position", "segments", "pieces", "newest", "version", "format"])
@pytest.mark.parametrize("value", [None, [], {}, "", "1", 1.5, [[]], [None], [[[]]], -1])
def test_no_type_is_unexpected(name: str, value: object, shelf: Path) -> None:
    fields = json.loads(the_manifest(shelf).read_bytes())["backup"]
    if name == "pieces" and value == []:
        return  # one that was cut off before its first piece
    if name == "version" and value in ("", "1"):
        return
    with pytest.raises(CommandError, match="is damaged"):
        decode_manifest(sealed(fields | {name: value}).encode(), "x")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"null", b"{}", b'{"backup": []}', b"\xff\xfe", b"[" * 1_000_000,
        b'{"backup": {"format": 1' + b"0" * 5_000 + b"}}", b"[[]," * 1_000_000,
        b'{"a":' * 100_000, b" " * (manifests.MANIFEST_BYTES_MAX + 1),
    ],
    ids=range(11),
)  # fmt: skip
def test_bytes_that_are_no_manifest_are_counted_first(
    cli: CliRig, shelf: Path, tmp_path: Path, data: bytes
) -> None:
    the_manifest(shelf).write_bytes(data)
    refused_everywhere(cli, shelf, tmp_path)


def test_a_newer_format_is_told_before_its_fields_are_judged(
    cli: CliRig, shelf: Path, tmp_path: Path
) -> None:
    rewrite(shelf, lambda of: of.update(format=2, more=ESCAPE))
    said = cli.refused("backup", "verify", str(shelf))
    assert "has format 2, this version reads up to 1" in said


IRREGULAR: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("make", IRREGULAR.values(), ids=IRREGULAR)
def test_only_regular_files_are_read(
    cli: CliRig, shelf: Path, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    piece = the_piece(shelf)
    kept = piece.read_bytes()
    piece.unlink()
    make(piece)
    said = cli.refused("backup", "verify", str(shelf), code=1)
    assert f"{piece.name} is " in said
    assert f"{piece.name} is " in cli.refused("restore", str(shelf), str(tmp_path / "d"), code=1)
    piece.unlink()
    piece.write_bytes(kept)
    path = the_manifest(shelf)
    path.unlink()
    make(path)
    assert f"{path.name} is " in cli.refused("backup", "verify", str(shelf), code=1)
    there = sorted(shelf.rglob("*"))
    cli.send_message("second", body=b"x")
    cli.ok("backup", str(shelf))
    assert set(there) <= set(shelf.rglob("*"))  # it may need them: nothing was swept


def test_a_piece_longer_than_its_name_says_is_not_read_to_its_end(cli: CliRig, shelf: Path) -> None:
    piece = the_piece(shelf)
    os.truncate(piece, 1 << 40)  # sparse
    said = cli.refused("backup", "verify", str(shelf), code=1)
    assert f"{piece.name} is longer than " in said


def test_a_folder_that_only_begins_as_a_shards_is_none(cli: CliRig, shelf: Path) -> None:
    (shelf / f"shard-{ESCAPE}").mkdir()
    assert "whole" in cli.ok("backup", "verify", str(shelf))


def test_nothing_is_written_through_what_lies_in_the_way(
    cli: CliRig, shelf: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    cli.now_ms += 1_000
    name = f"{datetime.fromtimestamp(cli.now_ms // 1_000, UTC):%Y%m%dT%H%M%SZ}.json"
    (shelf / "backups" / f"{name}.latermq-new").symlink_to(outside)
    cli.ok("backup", str(shelf))
    assert outside.read_text() == "kept"


def test_the_most_pieces_are_within_the_bounds_of_what_is_read() -> None:
    """What we write ourselves is read again; here one in three hundred of it."""
    share, size = manifests.PIECES_MAX // 300, 64 << 10
    first = (1 << 62) - share * size
    segments = tuple((first + at * size, size) for at in range(share))
    fields: dict[str, Any] = {
        "name": "20261129T000000Z", "taken_at_ms": 1, "version": "1", "broker": "b",
        "log_uuid": "0" * 32, "position": 1 << 62, "newest": (0, (1 << 64) - 1), "repairs": 0,
        "shard_mark": "", "segments": segments,
    }  # fmt: skip
    pieces = tuple(
        manifests.Piece(begin, end - begin, "f" * 32) for begin, end in grid(segments, 1 << 62)
    )
    whole = manifests.Manifest(**fields, pieces=pieces)
    assert whole.is_whole
    data = whole.encode()
    assert decode_manifest(data, whole.name) == whole
    assert 300 * len(data) < manifests.MANIFEST_BYTES_MAX
    assert 300 * (data.count(b",") + data.count(b"[")) < manifests._VALUES_MAX
    beyond = {**fields, "segments": ((0, 1 << 62),)}
    with pytest.raises(ValueError, match=f"at most {manifests.PIECES_MAX} can be"):
        manifests.Manifest(**beyond, pieces=())
