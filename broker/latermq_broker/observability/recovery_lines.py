"""What the log says of a start: what was found in the data directory."""

import logging
from pathlib import Path

from latermq_broker.store.recovery import RecoveryReport

log = logging.getLogger("latermq.runtime")


def log_recovery(directory: Path, report: RecoveryReport, took_ms: int) -> None:
    """Write a line of what was found, and one of each checkpoint that was not usable."""
    for why in report.passed_over:
        log.warning(
            "checkpoint not usable, an older one or the log itself is", extra={"reason": why}
        )
    where = {"directory": str(directory), "ms": took_ms}
    if report.new:
        log.info("store made", extra=where)
        return
    log.info(
        "store open",
        extra=where
        | {
            "clean": report.clean,
            "records": report.records,
            "torn_bytes": report.torn_bytes,
            "rebuilt": report.rebuilt,
        },
    )
