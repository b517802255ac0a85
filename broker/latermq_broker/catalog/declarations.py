"""Who declares each schedule: the apps whose code has it, and since when no worker of them runs.

Owns the table in memory. It is changed only by SCHEDULE records, live and in replay alike. Times
are times of day, in milliseconds since the epoch.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

RUNNING: Final = 0  # as the time since when no worker of an app runs
NO_WORKER: Final = 1  # likewise: none has run; it was declared at a deployment, or by hand
BY_HAND: Final = ""  # as an app: somebody made the schedule, and no code has to have it


class Declarations:
    """For each schedule its apps, each with the time since when it has no running worker."""

    def __init__(self) -> None:
        self._apps: dict[str, dict[str, int]] = {}

    def of(self, name: str) -> Mapping[str, int]:
        """Return the apps of a schedule, each with its time, RUNNING or NO_WORKER."""
        return self._apps.get(name, {})

    def note(self, app: str, names: Iterable[str], since_ms: int) -> None:
        """Note that the app has these schedules, declared by no running worker since then."""
        for name in names:
            self._apps.setdefault(name, {})[app] = since_ms

    def withdraw(self, app: str, names: Iterable[str]) -> None:
        """Note that the app has these schedules no more."""
        for name in names:
            apps = self._apps.get(name, {})
            apps.pop(app, None)
            if not apps:
                self.forget(name)

    def forget(self, name: str) -> None:
        """Forget a schedule that was removed."""
        self._apps.pop(name, None)

    def running(self) -> list[tuple[str, str]]:
        """List app and schedule wherever a worker of the app runs."""
        return [
            (app, name)
            for name, apps in sorted(self._apps.items())
            for app, since_ms in sorted(apps.items())
            if app != BY_HAND and since_ms == RUNNING
        ]

    def idle_since_ms(self, name: str) -> int:
        """Return since when no running worker of any app has declared the schedule.

        0: one does, somebody has it who needs no worker for it, or no app is known that has it.
        """
        since = self.of(name).values()
        if not since or RUNNING in since or NO_WORKER in since:
            return 0
        return max(since)

    def snapshot(self) -> bytes:
        """Encode a checkpoint's section: JSON {schedule: {app: since ms}}; empty without any."""
        if not self._apps:
            return b""
        return json.dumps(self._apps, separators=(",", ":"), sort_keys=True).encode()

    def restore(self, section: bytes) -> None:
        for name, apps in json.loads(section or b"{}").items():
            for app, since_ms in apps.items():
                self.note(app, [name], since_ms)
