"""Records that match their checksum and that no start takes: a repair gives them up one by one.

Which ones they are only a replay tells, and what a later one means may hang on an earlier one. So
each that is found gets its LOST record, and the log is replayed again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from latermq_broker.config.config import Config
from latermq_broker.errors import UnreplayableError
from latermq_broker.offline.mending.closing import close_log
from latermq_broker.offline.trial_start import first_unreplayable
from latermq_broker.store.files import Files
from latermq_broker.store.offline.inspect import NOTHING, Look, verify_directory
from latermq_broker.store.offline.repair import Describe, Repaired, plan_repair, repair_directory
from latermq_broker.store.records.kinds import check_content

REFUSALS_MAX: Final = 1_000  # records that one repair gives up one by one


def planned(
    path: Path, files: Files, look: Look, now_ms: int
) -> tuple[Repaired, Mapping[int, str]]:
    """Tell what a repair would give up, and which records of it a start refuses.

    Where other damage is, that is not known before it is mended. Raises as `verify_directory`.
    """
    done = plan_repair(path, files, look)
    if done.losses:
        return done, NOTHING
    refusal = first_unreplayable(path, files, now_ms)
    if refusal is None:
        return done, NOTHING
    refused = {refusal.position: refusal.reason}
    return plan_repair(path, files, look, refused), refused


def closed_log(
    path: Path, files: Files, config: Config, now_ms: int, describe: Describe
) -> tuple[Repaired, Sequence[UnreplayableError]]:
    """Close the log as `close_log`; give up what a start refuses, until it starts on the rest.

    Returns what was given up for that, and what `close_log` passed over.
    Raises:
        UnreplayableError: of more than REFUSALS_MAX records, or of one that was given up.
        StoreError: as `close_log` and `repair_directory`.
    """
    end = verify_directory(path, files, check_content).end  # behind it stands what this writes
    done, known = Repaired((), (), ()), set[int]()
    while True:
        refusal: UnreplayableError | None
        passed_over: Sequence[UnreplayableError] = ()
        try:
            passed_over = close_log(path, files, config, now_ms)
            refusal = first_unreplayable(path, files, now_ms, whole=True)
        except UnreplayableError as error:
            refusal = error
        if refusal is None:
            return done, passed_over
        if refusal.position in known or refusal.position >= end or len(known) >= REFUSALS_MAX:
            raise refusal
        known.add(refusal.position)
        refused = {refusal.position: refusal.reason}
        more = repair_directory(path, files, now_ms, describe, check_content, refused)
        done = Repaired(
            (*done.losses, *more.losses),
            (*done.copies, *more.copies),
            (*done.reports, *more.reports),
        )
