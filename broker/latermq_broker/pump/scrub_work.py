"""Old segments are read from the medium and checked, one after the other, for ever.

Bytes rot where nobody looks. Found early, there may still be a backup; found late, a consumer waits
for a message that cannot be read. Each pause one segment is checked, by a process of its own that
waits behind all others: at 256 MiB every ten minutes some 36 GB a day.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from latermq_broker.config.config import OnCorrupt, StoreConfig
from latermq_broker.errors import CorruptRecordError, StoreError
from latermq_broker.store.log.segment import Segment
from latermq_broker.store.store import Store

log = logging.getLogger("latermq.scrub")

SCRUB_SECONDS_MAX: Final = 3_600


class Starter(Protocol):
    """`disk_work.Jobs.start`."""

    def __call__(
        self, name: str, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> bool: ...


class Scrub:
    """
    Args:
        start: runs work in a thread; it waits for the process there.
        on_failure: with `on_corrupt = "stop"`, told of the first damage.
    """

    def __init__(
        self,
        store: Store,
        config: StoreConfig,
        start: Starter,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._config = config
        self._start = start
        self._on_failure = on_failure
        self._next_ms = 0  # 0: not before a pause from the first look
        self._checked = -1  # base of the segment that was checked last
        self._report: dict[str, Any] = {}

    def look(self, now_ms: int) -> None:
        """Begin with the next segment if it is time."""
        if not self._config.scrub_pause_ms:
            return
        if not self._next_ms:
            self._next_ms = now_ms + self._config.scrub_pause_ms
        segment = self._next() if now_ms >= self._next_ms else None
        if segment is not None and self._start(
            "scrub", lambda: self._check(segment), lambda error: self._done(segment, error)
        ):
            self._next_ms = now_ms + self._config.scrub_pause_ms

    def _next(self) -> Segment | None:
        """Pick the segment behind the last, or the oldest again; never one a start would replay."""
        end = self._store.checkpointed
        old = [segment for segment in self._store.log.segments[:-1] if segment.end <= end]
        behind = (segment for segment in old if segment.base > self._checked)
        return next(behind, old[0] if old else None)

    def _check(self, segment: Segment) -> None:
        """Check a segment in a process of its own, waited for in a thread; keep its report."""
        command = [sys.executable, "-m", "latermq_broker.store.offline.scrub", str(segment.path)]
        ended = subprocess.run(
            command,
            check=True,
            timeout=SCRUB_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        self._report = json.loads(ended.stdout)

    def _done(self, segment: Segment, error: BaseException | None) -> None:
        self._checked = segment.base
        if error is not None:
            if segment in self._store.log.segments:  # else it was dropped meanwhile
                reason = getattr(error, "stderr", b"") or str(error)
                log.warning("segment not checked", extra={"reason": str(reason)[-500:]})
            return
        scrubbed = self._store.scrubbed
        scrubbed.segments += 1
        scrubbed.records += self._report["records"]
        scrubbed.damages += self._report["damaged"]
        for position, reason, resumes in self._report["damages"]:
            fields = {"segment": segment.path.name, "position": position, "reason": reason}
            log.error("record damaged on disk", extra={**fields, "good_from": resumes})
        if self._report["damages"] and self._config.on_corrupt is OnCorrupt.STOP:
            self._on_failure(_error(self._report["damages"][0]))


def _error(damage: list[Any]) -> StoreError:
    return CorruptRecordError(damage[0], f"{damage[1]}; stopped, as store.on_corrupt says")
