"""Who may write to a bucket: the marks of `latermq_cli.backup.mark`, on fsspec's memory."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import fsspec
import pytest

from latermq_cli import clock
from latermq_cli.backup import mark
from latermq_cli.backup.mark import HELD_UP_S, RUNNING, STALE_S, Mark
from latermq_cli.backup.shelf import BucketShelf
from latermq_cli.terminal.failures import CommandError, RefusedError


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://marks-{tmp_path.name}"


@pytest.fixture
def at_store(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The store's clock."""
    now = [datetime.now(UTC)]
    modified = {}
    memory = type(fsspec.filesystem("memory"))
    pipe_file = memory.pipe_file

    def written(self: object, path: str, value: bytes, **options: object) -> None:
        modified[path] = now[0]
        pipe_file(self, path, value, **options)

    monkeypatch.setattr(memory, "pipe_file", written)
    monkeypatch.setattr(memory, "modified", lambda self, path: modified[path])
    return now


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now_ms = clock.now_ms() + int(seconds * 1_000)
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give nobody time to go: of two marks of one millisecond the first may sort behind."""
    monkeypatch.setattr(mark, "GIVE_WAY_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_one_at_a_time(url: str) -> None:
    shelf = BucketShelf(url)
    with (
        shelf.locked(),
        pytest.raises(RefusedError, match="is running: process"),
        BucketShelf(url).locked(),
    ):
        pass
    assert not shelf.names(RUNNING)
    with BucketShelf(url).locked():
        assert len(shelf.names(RUNNING)) == 1


def test_one_who_is_interrupted_takes_its_mark_away(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = BucketShelf(url)
    with pytest.raises(KeyboardInterrupt), shelf.locked():
        raise KeyboardInterrupt
    assert not shelf.names(RUNNING)

    def interrupt(*_: object) -> None:
        assert shelf.names(RUNNING), "it is written already"
        raise KeyboardInterrupt

    monkeypatch.setattr(BucketShelf, "written_at", interrupt)
    with pytest.raises(KeyboardInterrupt), shelf.locked():
        pass
    assert not shelf.names(RUNNING)


@pytest.mark.usefixtures("impatient")
def test_the_mark_of_one_who_died_counts_for_a_while(url: str, at_store: list[datetime]) -> None:
    Mark(BucketShelf(url)).wait()  # and it is never removed
    at_store[0] += timedelta(seconds=STALE_S)
    with pytest.raises(RefusedError), BucketShelf(url).locked():
        pass
    at_store[0] += timedelta(seconds=1)
    with BucketShelf(url).locked():
        assert len(BucketShelf(url).names(RUNNING)) == 1


@pytest.mark.usefixtures("impatient")
def test_one_who_works_for_long_keeps_its_mark(
    url: str, at_store: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = BucketShelf(url)
    with shelf.locked():
        for _ in range(5):
            at_store[0] += timedelta(seconds=HELD_UP_S)
            later(monkeypatch, HELD_UP_S)
            shelf.write("log", "piece", b"")
        with pytest.raises(RefusedError), BucketShelf(url).locked():
            pass


@pytest.mark.parametrize("clock_by_s", [60, -60])
def test_one_who_was_held_up_neither_writes_nor_deletes(
    url: str, at_store: list[datetime], monkeypatch: pytest.MonkeyPatch, clock_by_s: int
) -> None:
    shelf = BucketShelf(url)
    shelf.write("log", "piece", b"as it was")
    acts: list[Callable[[], None]] = [
        lambda: shelf.write("log", "piece", b"new"),
        lambda: shelf.delete("log", "piece"),
    ]
    for act in acts:
        with shelf.locked(), monkeypatch.context() as patch:
            at_store[0] += timedelta(seconds=HELD_UP_S + 1)
            later(patch, clock_by_s)
            with pytest.raises(CommandError, match="was held up"):
                act()
        assert shelf.read("log", "piece", 100) == b"as it was"


def test_of_two_that_come_at_once_the_later_mark_gives_way(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = BucketShelf(url)
    shelf.write(RUNNING, "9", b"process 1 on elsewhere")
    monkeypatch.setattr(clock, "sleep", lambda _: shelf.delete(RUNNING, "9"))
    with shelf.locked():
        pass
    shelf.write(RUNNING, "9", b"process 1 on elsewhere")  # it does not go: it works already
    monkeypatch.setattr(clock, "sleep", lambda _: None)
    monkeypatch.setattr(mark, "GIVE_WAY_S", 0.0)
    with pytest.raises(RefusedError, match="process 1 on elsewhere"), shelf.locked():
        pass
    assert list(shelf.names(RUNNING)) == ["9"]


def test_never_two_and_never_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark, "LOOK_S", 0.001)
    barrier, lock, inside, worked = Barrier(3), Lock(), [0], [0]

    def come(_: int) -> None:
        barrier.wait()
        try:
            with BucketShelf(url).locked():
                with lock:
                    inside[0] += 1
                    worked[0] += 1
                    assert inside[0] == 1
                with lock:
                    inside[0] -= 1
        except RefusedError:
            pass

    with ThreadPoolExecutor(3) as threads:
        for rounds in range(1, 31):
            list(threads.map(come, range(3)))
            assert worked[0] >= rounds
            worked[0] = rounds


def test_a_store_without_times_will_not_do(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(memory, "modified", fsspec.AbstractFileSystem.modified)
    with pytest.raises(RefusedError, match="does not say when"), BucketShelf(url).locked():
        pass
    assert not BucketShelf(url).names(RUNNING), "its mark would hold up others"


def test_a_password_in_the_url_is_not_printed() -> None:
    class Nowhere:
        def ls(self, path: str, detail: bool) -> list[Any]:
            raise OSError("nobody answers")

    shelf = BucketShelf("ftp://backup:hunter2@host/latermq", Nowhere(), "latermq")
    with pytest.raises(CommandError) as failed:
        shelf.below("shard-0").folders()
    assert failed.value.message.startswith("ftp://backup:…@host/latermq/shard-0 cannot be used")
    with pytest.raises(RefusedError) as refused:
        BucketShelf("nonsense://backup:hunter2@host/latermq")
    assert "hunter2" not in refused.value.message
