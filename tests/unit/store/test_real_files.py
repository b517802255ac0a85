"""The store on the operating system's files: the same behaviour, real locks, limits and maps."""

import os
import resource
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from latermq_broker.config.config import Flush, StoreConfig
from latermq_broker.errors import StoreFullError, StoreLockedError, StoreUnusableError
from latermq_broker.store.files import OpenMode, RealFiles, write_all
from latermq_broker.store.offline.inspect import scan_directory, verify_directory
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.store import Store

SEGMENT_BYTES = 1 << 20
BODY = bytes(range(256)) * 64


def config(flush: Flush = Flush.ASYNC) -> StoreConfig:
    return StoreConfig(segment_bytes=SEGMENT_BYTES, message_body_bytes_max=64 << 10, flush=flush)


def start(directory: Path, flush: Flush = Flush.ASYNC) -> tuple[Store, list[bytes]]:
    found: list[bytes] = []

    def apply(records: Sequence[Record]) -> None:
        found.extend(bytes(record.payload) for record in records)

    store = Store.open(directory, config(flush), RealFiles(), 1000)
    store.recover(lambda sections: found.append(sections["all"]), apply, 1000)
    return store, found


@pytest.mark.parametrize("flush", list(Flush))
def test_a_life(tmp_path: Path, flush: Flush) -> None:
    directory = tmp_path / "not" / "yet" / "there"
    store, found = start(directory, flush)
    assert found == []
    positions = []
    for number in range(200):
        positions.append(store.log.append(RecordType.MESSAGE, [b"%d " % number, BODY], number))
        if number % 20 == 0:
            store.log.write()
            store.log.prepare_next()
        if number % 50 == 0:
            store.log.synced(store.log.sync())
    store.log.write()
    for number, position in enumerate(positions):
        assert store.log.read(position).payload == b"%d " % number + BODY
    store.abandon()
    store, found = start(directory, flush)
    assert found == [b"%d " % number + BODY for number in range(200)]
    assert store.log.read(positions[7]).payload == b"7 " + BODY

    def checkpoint() -> None:
        job = store.begin_checkpoint({"all": b"everything"}, 2000)
        job.run()
        store.finish_checkpoint(job)

    store.close(checkpoint, 2000)
    store, found = start(directory, flush)
    assert found == [b"everything"]
    store.abandon()
    report = verify_directory(directory, RealFiles())
    assert report.ok
    assert len(report.segments) == 4
    assert sum(1 for _ in scan_directory(directory, RealFiles())) == 200 + 3 + 1 + 3


def test_a_second_opener_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    store, _ = start(tmp_path)
    with pytest.raises(StoreLockedError, match=str(tmp_path)):
        start(tmp_path)
    store.abandon()
    start(tmp_path)[0].abandon()


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        start(tmp_path)
        os.write(done, b"x")
        signal.pause()
    assert os.read(ready, 1) == b"x"
    with pytest.raises(StoreLockedError):
        start(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    start(tmp_path)[0].abandon()
    os.close(ready)
    os.close(done)


@pytest.fixture
def small_files() -> Iterator[None]:
    """The operating system refuses files beyond half a segment, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT_BYTES // 2, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_no_room_for_the_first_segment(tmp_path: Path, small_files: None) -> None:
    with pytest.raises(StoreUnusableError, match="disk full"):
        start(tmp_path)
    assert os.listdir(tmp_path / "log") == []


def test_no_room_for_the_next_segment(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store, _ = start(tmp_path)
    request.getfixturevalue("small_files")
    with pytest.raises(StoreFullError, match="disk full"):
        store.log.prepare_next()
    while store.log.end < SEGMENT_BYTES - 2 * len(BODY):
        store.log.append(RecordType.MESSAGE, [BODY], 1)
    with pytest.raises(StoreFullError, match="disk full"):
        store.log.reserve([len(BODY)] * 2)
    assert os.listdir(tmp_path / "log") == [f"{0:020d}.seg"]
    store.abandon()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_directory_without_permission(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "closed"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(StoreUnusableError, match="Permission denied"):
        start(directory)
    directory.chmod(0o700)


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with pytest.raises(StoreUnusableError, match="is a file"):
        start(path)
    with pytest.raises(StoreUnusableError, match="is a file"):
        start(path / "below")


def test_files_do_what_the_protocol_says(tmp_path: Path) -> None:
    files = RealFiles()
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        files.open(path, OpenMode.READ)
    fd = files.open(path, OpenMode.CREATE)
    with pytest.raises(FileExistsError):
        files.open(path, OpenMode.CREATE)
    files.allocate(fd, 4096)
    assert files.size(fd) == 4096
    view = files.map(fd, 4096)
    write_all(files, fd, memoryview(b"hello"), 4000)
    assert view[4000:4006] == b"hello\0"
    assert files.pread(fd, 200, 4000) == b"hello".ljust(96, b"\0")
    files.datasync(fd)
    files.drop_cache(fd)
    view.close()
    files.close(fd)
    files.rename(path, tmp_path / "b")
    files.make_directory(tmp_path / "c" / "d")
    files.sync_directory(tmp_path)
    assert files.list_directory(tmp_path) == ["b", "c"]
    assert files.free_bytes(tmp_path).remote == ""
    assert files.free_bytes(Path("/proc")).remote == ""
    with pytest.raises(FileNotFoundError):
        files.free_bytes(tmp_path / "d")
    files.unlink(tmp_path / "b")
    files.remove_directory(tmp_path / "c" / "d")
    assert files.list_directory(tmp_path / "c") == []
