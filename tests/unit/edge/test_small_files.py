"""Small files that somebody else wrote, or that have no end: refused in words, soon."""

from collections.abc import Callable
from pathlib import Path

import pytest

from latermq_broker.cluster.catalogue_file import read_memory
from latermq_broker.cluster.mark import read_mark
from latermq_broker.config.toml_file import FILE_BYTES_MAX, load
from latermq_broker.errors import ConfigError, StoreUnusableError
from latermq_broker.store.directory import CATALOGUE_NAME, SHARD_NAME

WRONG = (b"", b"[]", b"null", b"[" * 200_000, b"{}\n[]\n{}", b'{"a": 1}\n{"a": 1}\n{}', b"\xff")


def test_settings_without_an_end() -> None:
    with pytest.raises(ConfigError, match=f"more than {FILE_BYTES_MAX} bytes"):
        load(Path("/dev/zero"), {}, {})


@pytest.mark.parametrize("content", WRONG, ids=range(len(WRONG)))
def test_marks_and_catalogues_of_no_sense(tmp_path: Path, content: bytes) -> None:
    readers: dict[str, Callable[[Path], object]] = {
        SHARD_NAME: read_mark, CATALOGUE_NAME: read_memory
    }  # fmt: skip
    for name, read in readers.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreUnusableError):
            read(tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to("/dev/zero")
        with pytest.raises(StoreUnusableError, match="not a regular file"):
            read(tmp_path)
        (tmp_path / name).unlink()
