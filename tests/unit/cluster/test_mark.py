"""The mark of a shard's directory: who may open it."""

from pathlib import Path

import pytest

from latermq_broker.cluster.mark import Mark, read_mark, require_shard, write_mark
from latermq_broker.cluster.supervisor import check_directories
from latermq_broker.errors import StoreUnusableError
from latermq_broker.store.directory import refuse_shard


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_mark(tmp_path) is None
    assert read_mark(tmp_path / "nowhere") is None
    mark = Mark(1, 4, {"orders": 0})
    write_mark(tmp_path, mark)
    assert (
        tmp_path / "SHARD"
    ).read_bytes() == b'{"pins": {"orders": 0}, "shard": 1, "shards": 4}\n'
    assert read_mark(tmp_path) == mark
    assert [path.name for path in tmp_path.iterdir()] == ["SHARD"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"shard": 1, "shards": null, "pins": {}}'])
def test_a_mark_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "SHARD").write_text(text)
    with pytest.raises(StoreUnusableError, match="does not say which shard"):
        read_mark(tmp_path)


def test_only_the_shard_it_is_opens_it(tmp_path: Path) -> None:
    write_mark(tmp_path, Mark(1, 4))
    assert require_shard(tmp_path, 1, 4) == Mark(1, 4)
    with pytest.raises(StoreUnusableError, match="is shard 1 of 4, not shard 1 of 3"):
        require_shard(tmp_path, 1, 3)
    with pytest.raises(StoreUnusableError, match="is shard 1 of 4, not shard 2 of 4"):
        require_shard(tmp_path, 2, 4)
    with pytest.raises(StoreUnusableError, match="is a shard of a cluster"):
        refuse_shard(tmp_path)


def test_a_broker_that_was_alone_becomes_the_first(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0.seg").touch()
    assert require_shard(tmp_path, 0, 4) is None
    with pytest.raises(StoreUnusableError, match="can become shard 0 only, not shard 1"):
        require_shard(tmp_path, 1, 4)


def test_a_copy_of_a_replicated_log_is_no_broker_alone(tmp_path: Path) -> None:
    """A standby has its shard's log before it is ever the owner, who writes the mark."""
    for name in ("log/0.seg", "REPLICA"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert require_shard(tmp_path, 1, 4) is None


class TestDirectoriesOfASupervisor:
    def test_new_ones(self, tmp_path: Path) -> None:
        check_directories(tmp_path / "nowhere", 4)
        check_directories(tmp_path, 4)

    def test_another_number_of_shards(self, tmp_path: Path) -> None:
        for number in range(4):
            (tmp_path / str(number)).mkdir()
            write_mark(tmp_path / str(number), Mark(number, 4))
        check_directories(tmp_path, 4)
        for count in (1, 3, 5):
            with pytest.raises(StoreUnusableError, match=f"shard 0 of 4, not shard 0 of {count}"):
                check_directories(tmp_path, count)

    def test_fewer_than_there_are(self, tmp_path: Path) -> None:
        (tmp_path / "3").mkdir()
        write_mark(tmp_path / "3", Mark(3, 4))
        with pytest.raises(StoreUnusableError, match="shard 3 of 4, not shard 3 of 2"):
            check_directories(tmp_path, 2)

    def test_a_broker_that_was_alone(self, tmp_path: Path) -> None:
        (tmp_path / "log").mkdir()
        with pytest.raises(StoreUnusableError, match="move it to a directory named 0"):
            check_directories(tmp_path, 2)
