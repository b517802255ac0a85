"""Whether brokers that are stopped at one position know the same, each by its own directory."""

import os
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
# Which handles ended together is told by how leases are laid out, so by when a broker was started.
LAID_OUT_ANEW: Final = (*LAID_OUT, "done")


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


def copies_of(directories: Sequence[Path]) -> list[Path]:
    """Copy what brokers that are stopped have, so that they may go on while it is compared.

    Segments that are full are linked: who stands still for a second is taken for dead.
    """
    copies = [directory.with_name(f"{directory.name}-copy") for directory in directories]
    for directory, copy in zip(directories, copies, strict=True):
        full = set(sorted((directory / LOG_NAME).glob("*.seg"))[:-1])

        def take(source: str, target: str, full: set[Path] = full) -> str:
            return str((os.link if Path(source) in full else shutil.copy2)(source, target))

        shutil.copytree(directory, copy, copy_function=take)
    return copies


def differences(copies: Sequence[Path], config: Path) -> list[str]:
    """Open each from its newest checkpoint, then remove it; list what others have otherwise."""
    at_ms = now_ms()
    first, *others = [knowledge(copy, config, at_ms) for copy in copies]
    return [
        f"{copy} has another {name} than {copies[0]}"
        for copy, other in zip(copies[1:], others, strict=True)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]


def knowledge(copy: Path, config: Path, at_ms: int) -> dict[str, object]:
    """What a broker that starts there knows when it has done what was due: sections of a snapshot,
    byte for byte, and facts. What falls due the owner alone writes down."""
    chosen = load(config, {}, {})
    store = Store.open(copy, chosen.store, RealFiles(), at_ms)
    engine = Engine.open(store, chosen, at_ms)
    try:
        known = {f"fact {name}": fact for name, fact in settled(engine, at_ms).items()}
        return known | {
            name: section
            for name, section in sections(engine).items()
            if not name.startswith(LAID_OUT_ANEW)
        }
    finally:
        engine.abandon()
        shutil.rmtree(copy)
