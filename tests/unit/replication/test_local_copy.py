"""A directory filled from a replicated log: cut behind what is known, refused where it is not."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import (
    CorruptRecordError,
    StoreLockedError,
    StoreUnusableError,
    UnsupportedFormatError,
)
from latermq_broker.offline.log_repair import repair
from latermq_broker.replication.batch import encode_batch, fence_of
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.local_copy import LocalCopy
from latermq_broker.replication.note import TEMPORARY_NAME, Note, read_note
from latermq_broker.store.directory import (
    CATALOGUE_NAME,
    LOG_NAME,
    REPLICA_NAME,
    refuse_replica,
)
from latermq_broker.store.files import RealFiles
from latermq_broker.store.log.segment import segment_name
from latermq_broker.store.records.record import RecordType
from support.log_in_memory import LogInMemory
from support.two_segments import SHOP, SIZE, two_segments

CONFIG = StoreConfig()
NEW = Note("shop", 3)


def opened(directory: Path, note: Note = NEW) -> LocalCopy:
    """Open it as if the replicated log had been asked."""
    copy = LocalCopy(directory, CONFIG, RealFiles(), note)
    copy.cut()
    return copy


def entries() -> list[bytes]:
    return [encode_batch(batch) for batch in two_segments()]


def feed(copy: LocalCopy, begin: int, end: int) -> None:
    for offset, data in enumerate(entries()[begin:end], begin):
        copy.write(copy.reader.read(Entry(offset, data))[1])


def keep(copy: LocalCopy) -> None:
    asyncio.run(copy.keep())


def fill(directory: Path) -> None:
    """Keep two entries, and have two more behind what is noted."""
    copy = opened(directory)
    feed(copy, 0, 2)
    keep(copy)
    feed(copy, 2, 4)
    copy.close()


def content(directory: Path, base: int = 0) -> bytes:
    return (directory / LOG_NAME / segment_name(base)).read_bytes()


def test_nothing_of_its_own_gets_into_it(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    feed(copy, 0, 2)
    with pytest.raises(AssertionError, match="resumed"):
        copy.store.log.append(RecordType.MARK, [b""], 5)
    copy.close()


def test_what_was_kept_stays_and_what_lies_behind_is_cut_off(tmp_path: Path) -> None:
    fill(tmp_path)
    assert content(tmp_path)[64:71] == b"onetwo\0"
    again = opened(tmp_path)
    assert content(tmp_path)[64:71] == b"one\0\0\0\0"
    assert len(content(tmp_path)) == SIZE
    assert not (tmp_path / LOG_NAME / segment_name(SIZE)).exists()
    assert again.reader.offset == 2
    feed(again, 2, 4)
    keep(again)
    again.close()
    assert content(tmp_path)[64:71] == b"onetwo\0"
    assert content(tmp_path, SIZE)[64:] == bytes(SIZE - 64)
    note = read_note(RealFiles(), tmp_path)
    assert note is not None
    assert note.segments == ((0, 1), (SIZE, 3))


def test_nothing_is_changed_before_the_engine_was_asked(tmp_path: Path) -> None:
    """Leave what lies behind the note, in its last segment and in later ones, and the rest."""
    fill(tmp_path)
    (tmp_path / LOG_NAME / "00000000000000016384.prep").write_bytes(b"begun")
    (tmp_path / TEMPORARY_NAME).write_bytes(b"begun, too")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    copy = LocalCopy(tmp_path, CONFIG, RealFiles(), NEW)
    assert [segment.base for segment in copy.store.log.segments] == [0]
    assert copy.end == 67
    keep(copy)
    copy.close()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("kept", "again", "lacks"),
    [(2, 2, 8_256 - 67), (2, 3, 8_256 - 70), (2, 4, 0), (1, 1, 8_256), (1, 2, 8_256 - 67)],
)
def test_an_owner_is_told_what_the_engine_has_not_given_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int, again: int, lacks: int
) -> None:
    copy = opened(tmp_path)
    copy.claim(1, 77)
    feed(copy, 0, kept)
    keep(copy)
    feed(copy, kept, 4)
    copy.close()
    copy = opened(tmp_path)
    feed(copy, kept, again)
    before = len(caplog.records)
    copy.claim(2, 78)
    copy.claim(2, 79)  # once is enough
    copy.close()
    said = [vars(record)["bytes"] for record in caplog.records[before:]]
    # A header ends with its checksum, whose last byte may be zero.
    assert len(said) == bool(lacks)
    assert all(lacks - 2 <= each <= lacks for each in said)


def test_who_was_not_the_owner_is_told_nothing_of_what_was_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = opened(tmp_path)
    copy.claim(1, 5)
    feed(copy, 0, 2)
    keep(copy)
    feed(copy, 2, 4)
    copy.close()
    copy = opened(tmp_path)
    copy.claim(2, 78)
    copy.close()
    assert "the replicated log lacks" not in caplog.text


class Watched(RealFiles):
    """Notes in which thread each descriptor was closed."""

    def __init__(self) -> None:
        self.closed: dict[int, int] = {}

    def close(self, fd: int) -> None:
        self.closed[fd] = threading.get_ident()
        super().close(fd)


def test_a_full_segment_is_let_go_where_it_is_read(tmp_path: Path) -> None:
    """In the loop: what a thread closes is perhaps being read, and its number used again."""
    files = Watched()
    copy = LocalCopy(tmp_path, CONFIG, files, NEW)
    copy.cut()
    feed(copy, 0, 4)
    full, last = copy.store.log.segments
    number = full.writable()
    keep(copy)
    assert full.fd is None
    assert files.closed[number] == threading.get_ident()
    assert last.fd is not None
    copy.close()


@pytest.mark.parametrize(("mine", "kept"), [((1, 77), True), ((1, 5), False)])
def test_what_is_remembered_beside_a_log_that_others_owned_goes(
    tmp_path: Path, mine: tuple[int, int], kept: bool
) -> None:
    copy = opened(tmp_path)
    copy.claim(*mine)
    (tmp_path / CATALOGUE_NAME).write_text("{}")
    feed(copy, 0, 2)
    copy.claim(2, 78)
    assert (tmp_path / CATALOGUE_NAME).exists() == kept
    copy.close()


def test_nothing_known_leaves_nothing(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    feed(copy, 0, 4)
    copy.close()
    opened(tmp_path).close()
    assert not list((tmp_path / LOG_NAME).iterdir())


def test_a_log_that_is_shorter_than_its_note_is_refused(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    feed(copy, 0, 4)
    keep(copy)
    copy.close()
    for base in (0, SIZE):
        (tmp_path / LOG_NAME / segment_name(base)).unlink()
    with pytest.raises(CorruptRecordError, match="empty the directory"):
        opened(tmp_path)


async def test_a_segment_that_only_began_is_not_looked_for(tmp_path: Path) -> None:
    """Its owner died before the group that begins it was whole, and another's fence cut it off."""
    *first, begun = two_segments()
    batches = [*first, begun._replace(last=False), fence_of(SHOP, 3, 2, 78)]
    replicated_log = LogInMemory()
    replicated_log.entries = list(map(encode_batch, batches))
    copy = opened(tmp_path)
    for offset, data in enumerate(replicated_log.entries):
        copy.write(copy.reader.read(Entry(offset, data))[1])
    await copy.keep()
    copy.close()
    again = LocalCopy(tmp_path, CONFIG, RealFiles(), NEW)
    await again.require_source(replicated_log)
    assert again.reader.offset == len(batches)
    again.close()


def test_it_is_locked(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    with pytest.raises(StoreLockedError):
        opened(tmp_path)
    copy.close()
    opened(tmp_path).close()


def test_another_shard_and_the_log_of_a_broker_that_was_alone_are_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreUnusableError, match="shard 3 of the cluster 'shop'"):
        opened(tmp_path, Note("shop", 4))
    (tmp_path / REPLICA_NAME).unlink()
    copy = opened(tmp_path)
    feed(copy, 0, 2)
    copy.close()
    (tmp_path / REPLICA_NAME).unlink()
    with pytest.raises(StoreUnusableError, match="a broker that was alone"):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "standing": 5}'])
def test_a_damaged_note_says_what_to_do(tmp_path: Path, text: str) -> None:
    opened(tmp_path).close()
    (tmp_path / REPLICA_NAME).write_text(text)
    with pytest.raises(StoreUnusableError, match="empty the directory"):
        opened(tmp_path)


def test_a_newer_note_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / REPLICA_NAME).write_text(json.dumps({"format": 2}))
    with pytest.raises(UnsupportedFormatError, match="newer version"):
        opened(tmp_path)


# Never changed: what a directory says stays readable.
GOLDEN = """{"format": 1, "cluster": "shop", "shard": 3, "offset": 2,
 "standing": [1, 77, 1, 67, 8192, 67, 8192], "segments": {"0": 1}, "mine": [1, 77]}"""


def test_the_golden_note_is_read(tmp_path: Path) -> None:
    copy = opened(tmp_path, NEW._replace(mine=(1, 77)))
    feed(copy, 0, 2)
    keep(copy)
    copy.close()
    whole = json.loads(GOLDEN) | {"whole": True}
    assert json.loads((tmp_path / REPLICA_NAME).read_text()) == whole
    (tmp_path / REPLICA_NAME).write_text(GOLDEN)
    assert read_note(RealFiles(), tmp_path) == copy.note._replace(whole=False)


def test_nobody_goes_on_with_it_alone_and_nobody_repairs_it(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreUnusableError, match=r"serve it with \[replication\]"):
        refuse_replica(tmp_path)
    ended = CliRunner().invoke(repair, [str(tmp_path), "--skip", "--yes"])
    assert ended.exit_code == 2
    assert "fills it again from the replicated log" in ended.output


def test_a_note_forgets_segments_that_are_gone(tmp_path: Path) -> None:
    """Else that of a standby, and what it writes every few seconds, grows as long as it stands."""
    copy = opened(tmp_path)
    feed(copy, 0, 4)
    keep(copy)
    copy.store.log.row.drop_before(SIZE)
    keep(copy)
    assert copy.note.segments == ((SIZE, 3),)
    assert read_note(RealFiles(), tmp_path) == copy.note
    copy.close()
