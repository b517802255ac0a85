"""Schedules: put, paused, resumed, removed; and what they send when their time comes.

A tick is one atomic group of the log: the MESSAGE, and the SCHEDULE record that says which tick it
was for and when the next one is. So whenever the broker dies, a tick was sent and counted or
neither, and a replay knows the next one without a calendar. When a schedule ticks, and what it
sends, is asked of `Ticks` while the broker lives; nothing ticks before it is there.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from latermq_broker.catalog.access import User
from latermq_broker.catalog.declarations import BY_HAND, NO_WORKER
from latermq_broker.catalog.schedules import NEVER, Missed, Schedule, Schedules, encode_schedule
from latermq_broker.catalog.shares import Shares, key_of, maker
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.send.held_ticks import HeldTicks
from latermq_broker.engine.send.missed_ticks import MissedTicks
from latermq_broker.engine.send.outgoing import payloads_of
from latermq_broker.engine.send.send_gate import SendGate
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import (
    BadRequestError,
    NotFoundError,
    RequestError,
    StoreFullError,
)
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.schedule_records import (
    SCHEDULE_DECLARED,
    SCHEDULE_PUT,
    SCHEDULE_REMOVE,
    SCHEDULE_TICK,
    SchedulePayload,
    declared_body,
)

log = logging.getLogger("latermq.engine")

SENT_AT_ONCE: Final = 100  # messages that one tick of the engine sends for schedules
NAMED_MAX: Final = 20  # schedules that one line of the log names
AT_ONCE_MS: Final = 0  # as a deadline
LATE_MS_MAX: Final = 60_000  # a tick that is later is missed, where missed ones are skipped


class Ticks(Protocol):
    """Knows calendars, time zones and messages: the edge's."""

    def first_after(self, schedule: Schedule, after_ms: int) -> int:
        """Find its first tick after that. Raises RequestError: it has none, or none is known."""

    def last_until(self, schedule: Schedule, first_ms: int, until_ms: int) -> int:
        """Find its last tick up to `until_ms`, which is not before its tick `first_ms`.

        Raises RequestError.
        """

    def message(self, schedule: Schedule, tick_ms: int) -> Outgoing:
        """Make the message of a tick. Raises RequestError: its topic takes no such message."""


class Put(NamedTuple):
    """What came of putting a schedule.

    before: as it was; None: it is new. The same object as `after` where nothing changed.
    """

    before: Schedule | None
    after: Schedule


class ScheduleAdmin:
    """Names, calendars and messages are checked by the edge, which sets `ticks`."""

    def __init__(self, state: EngineState, journal: Journal, gate: SendGate) -> None:
        self._gate = gate
        self._held = HeldTicks(gate, state.schedules)
        self._state = state
        self._journal = journal
        self._shares = Shares(state.config.auth)
        self._missed = MissedTicks(lambda name: state.schedules.get(name) is not None)
        self.ticks: Ticks | None = None
        self._planned_ahead_ms: int | None = None
        """How far the wall clock was ahead when the next ticks were looked at; None: not yet."""

    @property
    def table(self) -> Schedules:
        return self._state.schedules

    def get(self, name: str) -> Schedule:
        """Return the schedule. Raises NotFoundError."""
        schedule = self.table.get(name)
        if schedule is None:
            raise NotFoundError(f"schedule not found: {name}")
        return schedule

    def put(
        self,
        wanted: Schedule,
        now_ms: int,
        *,
        alter: bool = True,
        user: User | None = None,
        app: str = BY_HAND,
    ) -> Put:
        """Have a schedule be as declared: its calendar, topic, message; it stays paused if it is.

        Args:
            alter: False: one that is there otherwise is left as it is, for the caller to tell.
            user: in whose share it counts, if it is new.
            app: whose it is, if it is new.
        Raises:
            BadRequestError: it sends to another topic; or never.
            TooManyRequestsError: there are as many as there may be, or as may be the user's.
        """
        self.check(wanted, alter=alter, user=user)
        known = self.table.get(wanted.name)
        wall_ms = self._state.wall.at(now_ms)
        if known is None:
            made = replace(wanted, created_ms=wall_ms, made_by=maker(user))
            return Put(None, self._write(made, wall_ms, now_ms, app=app))
        if not alter or not wanted.differences(known):
            return Put(known, known)
        changed = replace(
            known,
            every_ms=wanted.every_ms,
            cron=wanted.cron,
            zone=wanted.zone,
            missed=wanted.missed,
            message=wanted.message,
        )
        calendar = (wanted.every_ms, wanted.cron, wanted.zone)
        is_due = calendar == (known.every_ms, known.cron, known.zone) and known.next_ms <= wall_ms
        due_ms = known.next_ms if is_due else NEVER
        return Put(known, self._write(changed, wall_ms, now_ms, due_ms))

    def check(self, wanted: Schedule, *, alter: bool, user: User | None) -> None:
        """See that it may be put, before anything is made for it. Raises as `put`."""
        known = self.table.get(wanted.name)
        if known is None:
            self._shares.check(
                user,
                "schedules",
                "schedules.count_max",
                self._state.config.schedules.count_max,
                len(self.table),
                self.table.count_of(key_of(user)),
            )
        elif alter and wanted.topic != known.topic:
            raise BadRequestError(
                f"schedule {wanted.name} sends to topic {known.topic}, not to {wanted.topic}: "
                "remove it first"
            )

    def pause(self, name: str, now_ms: int, fault: str = "") -> Schedule:
        """Have it send nothing until it is resumed. Raises NotFoundError."""
        known = self.get(name)
        if known.paused:
            return known
        changed = replace(known, paused=True, fault=fault)
        return self._write(changed, self._state.wall.at(now_ms), now_ms)

    def resume(self, name: str, now_ms: int) -> Schedule:
        """Have it tick from now on; what was due meanwhile is not sent.

        Raises NotFoundError; RequestError: it never would.
        """
        known = self.get(name)
        if not known.paused:
            return known
        changed = replace(known, paused=False, fault="")
        return self._write(changed, self._state.wall.at(now_ms), now_ms)

    def remove(self, name: str, now_ms: int) -> None:
        """Remove the schedule. Raises NotFoundError."""
        self.get(name)
        payload = SchedulePayload(SCHEDULE_REMOVE, name.encode())
        self._journal.write(RecordType.SCHEDULE, payload, now_ms)

    def _write(
        self,
        schedule: Schedule,
        wall_ms: int,
        now_ms: int,
        next_ms: int = NEVER,
        app: str | None = None,
    ) -> Schedule:
        """Put it, with a tick that is due and not sent yet; NEVER: with the first from now on.

        Args:
            app: the one whose code has this new schedule, or BY_HAND; None: it is not new.
        """
        if self._is_put_off:  # so that a clock that goes back to where it was is noticed
            self._plan_anew(now_ms)
        if not schedule.paused and next_ms == NEVER:
            next_ms = self._next(schedule, wall_ms)
        put = replace(schedule, next_ms=next_ms, changed_ms=wall_ms)
        payload = SchedulePayload(SCHEDULE_PUT, encode_schedule(put))
        items = [(RecordType.SCHEDULE, payload)]
        if app is not None:
            declared = declared_body(app, [put.name])
            items.append(
                (RecordType.SCHEDULE, SchedulePayload(SCHEDULE_DECLARED, declared, NO_WORKER))
            )
        self._journal.write_group(items, now_ms)
        return put

    def _first_after(self, schedule: Schedule, after_ms: int) -> int:
        assert self.ticks is not None, "whoever puts schedules knows calendars"
        return self.ticks.first_after(schedule, after_ms)

    def _next(self, schedule: Schedule, wall_ms: int) -> int:
        """Find the first tick after now, or the one after that where that one was the last sent.

        So a clock that was ahead for a moment silences nothing: ticks between now and a last tick
        that lies in the future come, though that may repeat some.
        """
        next_ms = self._first_after(schedule, wall_ms)
        return self._first_after(schedule, next_ms) if next_ms == schedule.last_ms else next_ms

    # --- a clock that went back ------------------------------------------------------------------

    def behind_ms(self, schedule: Schedule, now_ms: int) -> int:
        """Return how much later its next tick is than its calendar's first from now; 0: it is not.

        Also of one whose first tick from now was sent already, by a clock that was ahead.
        """
        return self._put_off_ms(schedule, self._state.wall.at(now_ms), self._first_after)

    def _put_off_ms(
        self, schedule: Schedule, wall_ms: int, first: Callable[[Schedule, int], int]
    ) -> int:
        if schedule.paused or self.ticks is None or schedule.next_ms <= wall_ms:
            return 0
        try:
            return max(0, schedule.next_ms - first(schedule, wall_ms))
        except RequestError:  # its zone is not known any more, or it never comes: told at its tick
            return 0

    def behind_count(self, now_ms: int) -> int:
        """Count the schedules whose next tick is later than their calendar says."""
        return sum(self.behind_ms(each, now_ms) > 0 for each in self.table.all())

    def _plan_anew(self, now_ms: int) -> None:
        """Give each schedule that a clock ahead had put off its first tick after now.

        Raises StoreFullError; then it is done at a later tick.
        """
        wall_ms = self._state.wall.at(now_ms)
        late = [each for each in self.table.all() if self._put_off_ms(each, wall_ms, self._next)]
        names = [each.name for each in late]
        for each in late:
            next_ms = self._next(each, wall_ms)
            payload = SchedulePayload(SCHEDULE_TICK, each.name.encode(), NEVER, next_ms)
            self._journal.write(RecordType.SCHEDULE, payload, now_ms)
        self._planned_ahead_ms = self._state.wall.ahead_ms
        if names:
            log.warning(
                "the wall clock was ahead: schedules tick from now on, not from their last tick",
                extra={"schedules": ", ".join(names[:NAMED_MAX]), "count": len(names)},
            )

    @property
    def _is_put_off(self) -> bool:
        """Tell whether the wall clock jumped since the next ticks were looked at."""
        return self._planned_ahead_ms != self._state.wall.ahead_ms

    # --- ticks ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Send what is due, a bounded number. Raises StoreFullError; the rest stays due."""
        next_ms = self.next_deadline_ms()
        if next_ms is None or next_ms > now_ms:
            return
        if self._is_put_off:
            self._plan_anew(now_ms)
        left = SENT_AT_ONCE
        for schedule in self.table.due(self._state.wall.at(now_ms)):
            left -= self._fire(schedule, now_ms, left)
            if left <= 0:
                return

    def next_deadline_ms(self) -> int | None:
        """Tell when the next tick is, on the broker's own clock; None: there is none."""
        next_ms = self.table.next_ms()
        if next_ms is None or self.ticks is None:
            return None
        if self._is_put_off:
            return AT_ONCE_MS
        ahead_ms = self._state.wall.ahead_ms
        return self._held.next_deadline_ms(ahead_ms) if len(self._held) else next_ms - ahead_ms

    def _fire(self, schedule: Schedule, now_ms: int, most: int) -> int:
        """Send what is due of a schedule, at most so much; return how many messages. What its user
        may not send yet stays due.

        One that cannot be sent pauses its schedule.
        """
        wall_ms = self._state.wall.at(now_ms)
        sent = 0
        try:
            while sent < most and NEVER < schedule.next_ms <= wall_ms:
                if self._held.holds(schedule.made_by, schedule.name, now_ms):
                    break
                tick_ms = self._due(schedule, wall_ms)
                if tick_ms != schedule.next_ms:
                    self._missed.note(schedule.name, schedule.next_ms, now_ms)
                if tick_ms == NEVER:
                    next_ms = self._first_after(schedule, wall_ms)
                    payload = SchedulePayload(SCHEDULE_TICK, schedule.name.encode(), NEVER, next_ms)
                    self._journal.write(RecordType.SCHEDULE, payload, now_ms)
                    return sent
                self._send(schedule, tick_ms, now_ms)
                sent += 1
                schedule = self.get(schedule.name)
        except RequestError as error:
            log.error(
                "schedule paused: its message cannot be sent",
                extra={"schedule": schedule.name, "reason": str(error)},
            )
            self.pause(schedule.name, now_ms, str(error))
        return sent

    def _due(self, schedule: Schedule, wall_ms: int) -> int:
        """Decide which of the ticks that are due is sent next; NEVER: none of them."""
        assert self.ticks is not None
        due_ms = schedule.next_ms
        if schedule.missed is Missed.ALL:
            floor_ms = wall_ms - self._state.config.schedules.catch_up_ms_max
            if due_ms < floor_ms:
                due_ms = self.ticks.first_after(schedule, floor_ms - 1)
            return due_ms if due_ms <= wall_ms else NEVER
        due_ms = self.ticks.last_until(schedule, due_ms, wall_ms)
        if schedule.missed is Missed.SKIP and wall_ms - due_ms > LATE_MS_MAX:
            return NEVER
        return due_ms

    def _send(self, schedule: Schedule, tick_ms: int, now_ms: int) -> None:
        """Store the message of a tick and what comes next, both or neither."""
        assert self.ticks is not None
        state = self._state
        disk = state.store.disk
        disk.admit()
        topic = state.catalog.require_topic(schedule.topic)
        message = self.ticks.message(schedule, tick_ms)
        next_ms = self.ticks.first_after(schedule, tick_ms)
        (payload,) = payloads_of(state, topic, [message], now_ms)
        change = SchedulePayload(SCHEDULE_TICK, schedule.name.encode(), tick_ms, next_ms)
        group = ((RecordType.MESSAGE, payload), (RecordType.SCHEDULE, change))
        try:
            self._journal.write_group(group, now_ms)
        except StoreFullError as error:
            raise disk.ran_out(error) from error
        self._gate.take(schedule.made_by, 1, len(message.rest) + len(message.sys), now_ms)
        state.figures.schedule_ticks += 1
