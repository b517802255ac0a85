"""What a shard remembers of the catalogue beside the log, in the file CATALOGUE of its directory.

    shard 0    {"deleted": {"topics": [["orders", "8f3a…"], …], "groups": […]}}
    others     {"log": "…", "topics": {"orders": ["8f3a…", "77b0…"], …}, "groups": {…}}
               {"topics": {"orders": ["90c1…", "b2aa…"]}}      a change; null: no more
               …

Without it nothing is lost: what shard 0 deleted while a shard was away comes back.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from latermq_broker.cluster.mark import replace_file
from latermq_broker.errors import StoreUnusableError
from latermq_broker.store.directory import CATALOGUE_NAME
from latermq_text.regular_files import read_regular

MEMORY_BYTES_MAX: Final = 256 << 20  # bytes of the file, changes that were added to it included


def read_memory(directory: Path) -> dict[str, Any]:
    """Read the file; empty: there is none yet. Raises StoreUnusableError."""
    path = directory / CATALOGUE_NAME
    try:
        first, *changes = read_regular(path, MEMORY_BYTES_MAX, follow=True).split(b"\n")
        memory = json.loads(first)
        for line in changes:
            _change(memory, line, last=line is changes[-1])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise StoreUnusableError(f"cannot read {path}: {error}") from error
    if not isinstance(memory, dict):
        raise StoreUnusableError(f"{path} is not what a shard writes there")
    return memory


def _change(memory: dict[str, Any], line: bytes, *, last: bool) -> None:
    """Make what a line says; the last one may have been cut off by a crash."""
    try:
        change = json.loads(line)
    except ValueError:
        if last:
            return
        raise
    for kind, entries in change.items():
        known = memory.setdefault(kind, {})
        for name, pair in entries.items():
            known[name] = pair
            if pair is None:
                del known[name]


def write_memory(directory: Path, memory: Mapping[str, Any]) -> None:
    """Write the file, durably, or leave the old one. Raises OSError."""
    replace_file(directory / CATALOGUE_NAME, json.dumps(memory, sort_keys=True).encode())


def add_to_memory(directory: Path, change: Mapping[str, Any]) -> None:
    """Add a change to a file that was written since this process began. Raises OSError.

    One that was taken away meanwhile stays away: the next start is to remember nothing.
    """
    with suppress(FileNotFoundError), (directory / CATALOGUE_NAME).open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + json.dumps(change, sort_keys=True).encode())
        file.flush()
        os.fsync(file.fileno())
