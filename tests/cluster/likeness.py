"""Whether brokers that are stopped at one position know the same, each by its own directory."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from latermq_broker.config.toml_file import load
from latermq_broker.engine.engine import Engine
from latermq_broker.store.directory import LOG_NAME
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from support.broker_process import READY_TIMEOUT_S
from support.driven_standby import LAID_OUT, sections
from support.simulation import settled
from support.wire_client import now_ms

PEACE_S: Final = 1.0


def stop_alike(
    pause: Callable[[], None], go_on: Callable[[], None], logs: Sequence[Sequence[Path]]
) -> None:
    """Stop everybody at a moment at which all the directories of each log have the same of it.

    Nobody asks for anything, but what falls due is still written.
    """
    until_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        pause()
        if all(len(set(map(last_segment, directories))) == 1 for directories in logs):
            return
        assert time.monotonic() < until_s, "a standby does not catch up"
        go_on()
        time.sleep(PEACE_S)  # in which an owner is heard


def last_segment(directory: Path) -> tuple[str, bytes] | None:
    """The name and the bytes of the segment that is written; None: there is none yet."""
    files = sorted((directory / LOG_NAME).glob("*.seg"))
    return (files[-1].name, files[-1].read_bytes()) if files else None


def differences(directories: Sequence[Path], config: Path) -> list[str]:
    """Open a copy of each from its newest checkpoint; list what others have otherwise."""
    at_ms = now_ms()
    first, *others = [knowledge(directory, config, at_ms) for directory in directories]
    return [
        f"{directory} has another {name} than {directories[0]}"
        for directory, other in zip(directories[1:], others, strict=True)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]


def knowledge(directory: Path, config: Path, at_ms: int) -> dict[str, object]:
    """What a broker that starts there knows when it has done what was due: sections of a snapshot,
    byte for byte, and facts. What falls due the owner alone writes down."""
    copy = directory.with_name(f"{directory.name}-copy")
    shutil.copytree(directory, copy)
    chosen = load(config, {}, {})
    store = Store.open(copy, chosen.store, RealFiles(), at_ms)
    engine = Engine.open(store, chosen, at_ms)
    try:
        known = {f"fact {name}": fact for name, fact in settled(engine, at_ms).items()}
        bytes_of = sections(engine)
        return known | {name: bytes_of[name] for name in bytes_of if not name.startswith(LAID_OUT)}
    finally:
        engine.abandon()
        shutil.rmtree(copy)
