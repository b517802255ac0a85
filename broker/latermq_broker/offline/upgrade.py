"""What `latermq upgrade-check` finds without a broker: of the settings, and of the directory.

The directory is opened by a trial start (`trial_files.py`): the very code of a start, with nothing
written and no lock taken.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.config.toml_file import load
from latermq_broker.errors import ConfigError, StoreError
from latermq_broker.offline.trial_start import trial_start
from latermq_broker.store.directory import LOCK_NAME, SHARD_NAME, has_file
from latermq_broker.store.files import RealFiles
from latermq_text.regular_files import open_regular

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"
Finding = tuple[str, str, str]  # how it is, of what, in words


def check(
    data: Path | None, file: Path | None, environment: Mapping[str, str]
) -> tuple[list[Finding], Path]:
    """Check settings and directory; what was found, and which directory that was.

    Args:
        data: None: the one that the settings name.
    """
    findings: list[Finding] = []
    named = f"{file} and the environment" if file else "the defaults and the environment"
    try:
        config = load(file, environment, {})
        findings.append((OK, "settings", f"{named} are understood"))
    except ConfigError as error:
        config = Config()
        findings.append((PROBLEM, "settings", f"a broker would not start with them: {error}"))
    directory = data or Path(config.server.data_dir)
    findings += _directory(directory, config)
    return findings, directory


def _directory(directory: Path, config: Config) -> Iterator[Finding]:
    try:
        is_empty = not directory.is_dir() or not any(directory.iterdir())
    except OSError as error:
        yield PROBLEM, "data", f"{directory} cannot be read: {error.strerror}; ask as its owner"
        return
    if is_empty:
        yield NOTE, "data", f"{directory} is empty or not there: a broker begins a new log there"
        return
    if has_file(directory, SHARD_NAME):
        yield NOTE, "data", "it is a shard of a cluster: ask of each shard's directory"
    runs = _is_locked(directory / LOCK_NAME)
    if runs:
        yield (
            NOTE,
            "data",
            "a broker runs on it: what that writes from now on is not looked at",
        )
    finding = _trial(directory, config)
    if runs and finding[0] == PROBLEM:  # a file may have gone while it was read
        finding = _trial(directory, config)
    yield finding


def _trial(directory: Path, config: Config) -> Finding:
    now_ms = SystemClock().now_ms()
    try:
        with trial_start(directory, RealFiles(), config, now_ms) as engine:
            recovery = engine.recovery
            assert recovery is not None
            topics, groups = engine.catalog.topic_count(), engine.catalog.group_count()
    except StoreError as refusal:
        return PROBLEM, "data", f"this version does not start on it: {refusal}"
    took_ms = SystemClock().now_ms() - now_ms
    whole = (
        "the whole log, as no checkpoint was usable" if recovery.rebuilt else "from a checkpoint"
    )
    words = (
        f"this version starts on it: {recovery.records:,} records replayed in {took_ms:,} ms, "
        f"{whole}; {topics:,} topics, {groups:,} groups; nothing was written"
    )
    return OK, "data", words


def _is_locked(path: Path) -> bool:
    try:
        descriptor = open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
