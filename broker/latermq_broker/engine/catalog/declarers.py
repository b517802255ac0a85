"""Workers that declare schedules, and the removal of schedules that no code has any more.

Each worker says every 10 s which schedules its code has. What is written is only that an app begins
to declare some, and since when none of its workers does: one that ended, or was silent for
SILENT_MS. What a worker declared when the broker's last life ended counts as heard when this one
began, for SILENT_MS: that worker may be on its way back.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from latermq_broker.catalog.declarations import BY_HAND, NO_WORKER, RUNNING
from latermq_broker.catalog.schedules import Schedule
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.schedule_records import (
    SCHEDULE_DECLARED,
    SCHEDULE_REMOVE,
    SCHEDULE_WITHDRAWN,
    SchedulePayload,
    declared_body,
)

SILENT_MS: Final = 45_000  # a worker that has said nothing for so long runs no more
WORKERS_MAX: Final = 10_000  # that declare schedules at a time
AT_ONCE_MS: Final = 0  # as a deadline
NAMES_MAX: Final = 100_000  # schedules that all of them declare together

Claim = tuple[str, str]  # an app and a schedule


class _Worker(NamedTuple):
    heard_ms: int
    names: frozenset[str]


class Pruned(NamedTuple):
    """What became of schedules that are declared by no running worker, or of another app, too."""

    removed: list[Schedule]
    kept: list[Schedule]


class Declarers:
    """What workers say that run; times are of the broker's own clock."""

    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self._workers: dict[tuple[str, str], _Worker] = {}  # by app and worker
        self._names_count = 0  # of all workers together
        self._heard_ms: dict[Claim, int] = {}  # when it was declared last, in this life
        self._began_ms: int | None = None  # this life; None: it has not
        self._before: frozenset[Claim] = frozenset()  # declared when the last life ended
        self._look_ms: int | None = None  # when a worker may have been silent for too long

    def declare(self, app: str, worker: str, names: Collection[str], now_ms: int) -> None:
        """Note that a worker runs, and which schedules its code has; others count for nothing.

        Raises:
            TooManyRequestsError: WORKERS_MAX others run.
            StoreFullError: no room now.
        """
        self._begin(now_ms)
        table = self._state.schedules
        present = frozenset(each.name for each in map(table.get, names) if each is not None)
        before = self._workers.get((app, worker))
        freed = 0 if before is None else len(before.names)
        if before is None and len(self._workers) >= WORKERS_MAX:
            raise TooManyRequestsError(f"{WORKERS_MAX} workers declare schedules already")
        if self._names_count - freed + len(present) > NAMES_MAX:
            raise TooManyRequestsError(f"workers declare {NAMES_MAX} schedules already")
        claims = [
            name
            for name in sorted(present)
            if self._state.declarations.of(name).get(app) != RUNNING
        ]
        if claims:
            self._write(SCHEDULE_DECLARED, app, claims, RUNNING, now_ms)
        self._names_count += len(present) - freed
        self._workers[app, worker] = _Worker(now_ms, present)
        for name in present:
            self._heard_ms[app, name] = now_ms
        self._look_by(self._until_ms(now_ms))
        if before is not None and not before.names <= present:
            self._look_by(now_ms)

    def end(self, app: str, worker: str, now_ms: int) -> None:
        """Note that a worker has ended. Raises StoreFullError: it is noted at a later tick."""
        self._begin(now_ms)
        known = self._forget((app, worker))
        for name in known:
            self._heard_ms[app, name] = now_ms
        self._look_by(now_ms)
        self.tick(now_ms)

    def claim(self, app: str, name: str, now_ms: int) -> None:
        """Note that an app has this schedule in its code, whether or not a worker of it runs.

        Raises StoreFullError.
        """
        if app not in self._state.declarations.of(name):
            self._write(SCHEDULE_DECLARED, app, [name], NO_WORKER, now_ms)

    def tick(self, now_ms: int) -> None:
        """Note which apps have no running worker any more. Raises StoreFullError."""
        self._begin(now_ms)
        if self._look_ms is None or now_ms < self._look_ms:
            return
        for key, each in list(self._workers.items()):
            if self._until_ms(each.heard_ms) <= now_ms:
                self._forget(key)
        running = {(app, name) for (app, _), each in self._workers.items() for name in each.names}
        began_ms = self._began_ms
        assert began_ms is not None
        ended: dict[tuple[str, int], list[str]] = {}
        deadlines = [self._until_ms(each.heard_ms) for each in self._workers.values()]
        for claim in self._state.declarations.running():
            if claim in running:
                continue
            if claim in self._before and self._until_ms(began_ms) > now_ms:
                deadlines.append(self._until_ms(began_ms))
                continue
            heard_ms = self._heard_ms.get(claim, began_ms)
            ended.setdefault((claim[0], heard_ms), []).append(claim[1])
        for (app, heard_ms), names in ended.items():
            self._write(SCHEDULE_DECLARED, app, names, self._state.wall.at(heard_ms), now_ms)
        for claim in self._heard_ms.keys() - running - set(self._state.declarations.running()):
            del self._heard_ms[claim]
        self._look_ms = min(deadlines, default=None)

    def next_deadline_ms(self) -> int | None:
        """Tell when a worker may have been silent for too long; None: none is known to run."""
        if self._began_ms is None:
            return AT_ONCE_MS if self._state.declarations.running() else None
        return self._look_ms

    def prune(
        self,
        app: str,
        keep: Iterable[str],
        now_ms: int,
        *,
        dry_run: bool,
        idle_ms: int = 0,
        by_code: bool = False,
        may: Callable[[Schedule], bool] = lambda _: True,
    ) -> Pruned:
        """Remove the schedules that apps declared and that no running worker declares.

        A schedule that another app declared, too, or that somebody made by hand, stays; the app is
        no longer among those that declare it.

        Args:
            app: whose schedules, of those that workers declared before; BY_HAND: of all apps.
            keep: those that stay.
            idle_ms: for how long at least no running worker has declared them.
            by_code: those of the app, too, that were declared without a worker.
            may: tells whether the caller may remove one.
        Raises StoreFullError.
        """
        self._begin(now_ms)
        stays, pruned = set(keep), Pruned([], [])
        idle_until_ms = self._state.wall.at(now_ms) - idle_ms
        for schedule in self._state.schedules.all():
            apps = self._state.declarations.of(schedule.name)
            ours = [
                each
                for each, since_ms in sorted(apps.items())
                if app in (BY_HAND, each) and (since_ms != NO_WORKER or by_code)
            ]
            if not ours or schedule.name in stays or not may(schedule):
                continue
            latest_ms = max(apps[each] for each in ours)
            if RUNNING in map(apps.get, ours) or (idle_ms and latest_ms > idle_until_ms):
                pruned.kept.append(schedule)
            elif len(ours) < len(apps):
                pruned.kept.append(schedule)
                for each in () if dry_run else ours:
                    self._write(SCHEDULE_WITHDRAWN, each, [schedule.name], 0, now_ms)
            else:
                pruned.removed.append(schedule)
                if not dry_run:
                    payload = SchedulePayload(SCHEDULE_REMOVE, schedule.name.encode())
                    self._journal.write(RecordType.SCHEDULE, payload, now_ms)
        return pruned

    def _begin(self, now_ms: int) -> None:
        if self._began_ms is None:
            self._began_ms = self._look_ms = now_ms
            self._before = frozenset(self._state.declarations.running())

    def _look_by(self, at_ms: int) -> None:
        self._look_ms = at_ms if self._look_ms is None else min(self._look_ms, at_ms)

    def _forget(self, key: tuple[str, str]) -> frozenset[str]:
        """Forget a worker; return what it declared."""
        known = self._workers.pop(key, None)
        if known is None:
            return frozenset()
        self._names_count -= len(known.names)
        return known.names

    def _until_ms(self, heard_ms: int) -> int:
        return self._state.hearing.extended_ms(heard_ms + SILENT_MS)

    def _write(
        self, operation: int, app: str, names: Collection[str], since_ms: int, now_ms: int
    ) -> None:
        payload = SchedulePayload(operation, declared_body(app, list(names)), since_ms)
        self._journal.write(RecordType.SCHEDULE, payload, now_ms)
