"""A start on a directory, or on a backup, that leaves it as it is: what a broker says of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latermq_broker.config.config import Config, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import StoreError, UnreplayableError
from latermq_broker.offline.trial_files import TrialFiles
from latermq_broker.store.derived.checkpoint import checkpoint_names
from latermq_broker.store.directory import CHECKPOINTS_NAME
from latermq_broker.store.files import Files
from latermq_broker.store.store import Store


@contextmanager
def trial_start(
    directory: Path, files: Files, config: Config, now_ms: int, *, whole: bool = False
) -> Iterator[Engine]:
    """Start an engine on a directory; nothing in it changes, and no lock is taken.

    Args:
        whole: replay the whole log, whatever checkpoints there are.
    Raises:
        StoreError: as a start does.
    """
    trial = TrialFiles(files)
    try:
        if whole:
            checkpoints = directory / CHECKPOINTS_NAME
            for name in checkpoint_names(trial, checkpoints):
                trial.unlink(checkpoints / name)
        store = Store.open(directory, config.store, trial, now_ms)
        try:
            engine = Engine.open(store, config, now_ms)
            yield engine
            engine.abandon()
        finally:
            store.abandon()
    finally:
        trial.close_all()


def first_unreplayable(
    directory: Path, files: Files, now_ms: int, *, whole: bool = False
) -> UnreplayableError | None:
    """Return what a start refuses a record for that matches its checksum; None: nothing.

    Whatever else a start refuses is said by others.
    """
    config = Config(store=StoreConfig(allow_network_files=True))
    try:
        with trial_start(directory, files, config, now_ms, whole=whole):
            return None
    except UnreplayableError as refusal:
        return refusal
    except StoreError:
        return None
