"""What a shard remembers of the catalogue beside the log, in the file CATALOGUE of its directory.

    shard 0    {"deleted": {"topics": [["orders", "8f3a…"], …], "groups": […]}}
    others     {"log": "…", "topics": {"orders": ["8f3a…", "77b0…"], …}, "groups": {…}}

Without it nothing is lost: what shard 0 deleted while a shard was away comes back.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latermq_broker.cluster.mark import replace_file
from latermq_broker.errors import StoreUnusableError
from latermq_broker.store.directory import CATALOGUE_NAME


def read_memory(directory: Path) -> dict[str, Any]:
    """Read the file; empty: there is none yet. Raises StoreUnusableError."""
    path = directory / CATALOGUE_NAME
    try:
        memory = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StoreUnusableError(f"cannot read {path}: {error}") from error
    if not isinstance(memory, dict):
        raise StoreUnusableError(f"{path} is not what a shard writes there")
    return memory


def write_memory(directory: Path, memory: Mapping[str, Any]) -> None:
    """Write the file, durably, or leave the old one. Raises OSError."""
    replace_file(directory / CATALOGUE_NAME, json.dumps(memory, sort_keys=True).encode())
