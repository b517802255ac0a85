"""A damaged log, repaired as `latermq log repair --skip --yes` does it."""

from pathlib import Path

from latermq_broker.config.config import Config
from latermq_broker.offline.mending.closing import close_log
from latermq_broker.store.files import Files
from latermq_broker.store.offline.repair import Repaired, repair_directory


def repair_log(path: Path, files: Files, config: Config, now_ms: int) -> Repaired:
    """Give up what cannot be read, and have the log say from what a broker goes on."""
    repaired = repair_directory(path, files, now_ms, lambda record: {})
    close_log(path, files, config, now_ms)
    return repaired
