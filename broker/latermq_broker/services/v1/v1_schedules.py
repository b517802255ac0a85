"""latermq.v1 Schedules: put, list, pause, remove, run, declare, prune. The engine keeps them."""

import logging
import re
from collections.abc import Sequence
from typing import Final

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import INTERNAL_PREFIXES
from latermq_broker.catalog.declarations import NO_WORKER, RUNNING
from latermq_broker.catalog.schedules import Missed, Schedule
from latermq_broker.catalog.shares import key_of
from latermq_broker.config.number_bounds import MS_MAX
from latermq_broker.errors import (
    BadRequestError,
    BodyTooLargeError,
    ForbiddenError,
    IllegalPropertyKeyError,
    NotFoundError,
)
from latermq_broker.services.auth.access_rules import BROWSE, PUB, meets, reading, topic
from latermq_broker.services.auth.guard import require
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import page_of
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.shards import Shards
from latermq_broker.services.messaging import validate
from latermq_broker.services.scheduling.calendars import check_steps
from latermq_broker.services.scheduling.ticks import OWN_PROPERTIES, TickMaker, tick_id
from latermq_broker.services.wire.wire_messages import DEDUP_PROPERTY, message_type
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import schedule_pb2

log = logging.getLogger("latermq.services")

EVERY_MS_MIN: Final = 1_000
DECLARED_MAX: Final = 10_000  # names in one request
LABEL_CHARACTERS_MAX: Final = 255  # of an app, and of a worker
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,127}")


class SchedulesService:
    def __init__(self, rooms: Rooms, shards: Shards | None = None) -> None:
        self._engine = rooms.engine
        self._schedules = rooms.engine.schedules
        self._declarers = rooms.engine.declarers
        self._declarations = rooms.engine.declarations
        self._committer = rooms.committer
        self._shards = shards
        self._rules = validate.MessageRules(rooms.config)
        self._message_bytes_max = rooms.config.schedules.message_bytes_max
        self._ticks = self._schedules.ticks = TickMaker(rooms.engine, rooms.committer)

    async def put_schedule(
        self, request: schedule_pb2.PutScheduleRequest, caller: Caller
    ) -> schedule_pb2.PutScheduleResponse:
        """Answer PutSchedule of schedule.proto.

        Raises:
            RequestError: as `validate` says of its message.
            BadRequestError: no name, no such interval, cron expression or time zone; another topic
                than before; in a cluster, a topic whose home is another shard.
            ForbiddenError: there is one of the name, which sends where the caller may not.
            TopicNotFoundError: it is not there, and not made on demand.
            TooManyRequestsError: too many schedules.
        """
        now_ms = self._committer.now_ms()
        user = caller.call.user
        known = self._schedules.table.get(request.schedule.name)
        if known is not None:  # the answer tells all of it
            _require_may_replace(user, known)
        wanted = self._wanted(request.schedule, now_ms)
        _check_label("app", request.app)
        self._schedules.check(wanted, alter=not request.keep, user=user)
        if known is None or known.topic == wanted.topic:  # else it is kept as it is
            self._check_topic(wanted)
            self._engine.ensure_topic(wanted.topic, now_ms, user)
        put = self._schedules.put(
            wanted, now_ms, alter=not request.keep, user=user, app=request.app
        )
        if request.app:
            self._declarers.claim(request.app, wanted.name, now_ms)
        await self._committer.written()
        response = schedule_pb2.PutScheduleResponse(
            status=ok_status(), schedule=self._message(put.after, user)
        )
        if put.before is not put.after and put.before is not None:
            log.info(
                "schedule altered",
                extra={
                    "schedule": wanted.name,
                    "fields": ", ".join(wanted.differences(put.before)),
                    "client": caller.client_id,
                },
            )
        if put.before is not None:
            response.before.CopyFrom(self._message(put.before, user))
            response.differences.extend(wanted.differences(put.before))
        return response

    def get_schedule(
        self, request: schedule_pb2.ScheduleRequest, caller: Caller
    ) -> schedule_pb2.ScheduleResponse:
        """Answer GetSchedule of schedule.proto.

        Raises NotFoundError: there is none, or none that the caller may see.
        """
        return self._response(self._seen(request, caller), caller)

    def list_schedules(
        self, request: schedule_pb2.ListSchedulesRequest, caller: Caller
    ) -> schedule_pb2.ListSchedulesResponse:
        """Answer ListSchedules of schedule.proto."""
        user = caller.call.user
        schedules = [each for each in self._schedules.table.all() if _may_see(user, each)]
        page, token = page_of(schedules, lambda each: each.name, request)
        return schedule_pb2.ListSchedulesResponse(
            status=ok_status(),
            schedules=[self._listed(each) for each in page],
            next_page_token=token,
        )

    async def pause_schedule(
        self, request: schedule_pb2.ScheduleRequest, caller: Caller
    ) -> schedule_pb2.ScheduleResponse:
        """Answer PauseSchedule of schedule.proto. Raises NotFoundError, ForbiddenError."""
        known = self._own(request, caller)
        paused = self._schedules.pause(known.name, self._committer.now_ms())
        await self._committer.written()
        return self._response(paused, caller)

    async def resume_schedule(
        self, request: schedule_pb2.ScheduleRequest, caller: Caller
    ) -> schedule_pb2.ScheduleResponse:
        """Answer ResumeSchedule of schedule.proto.

        Raises:
            NotFoundError, ForbiddenError.
            RequestError: its message cannot be sent, or its time zone is not known any more.
        """
        known, now_ms = self._own(request, caller), self._committer.now_ms()
        self._check_topic(known)
        self._ticks.first_after(known, self._engine.wall.at(now_ms))
        self._engine.ensure_topic(known.topic, now_ms, caller.call.user)
        resumed = self._schedules.resume(known.name, now_ms)
        await self._committer.written()
        return self._response(resumed, caller)

    async def remove_schedule(
        self, request: schedule_pb2.ScheduleRequest, caller: Caller
    ) -> schedule_pb2.RemoveScheduleResponse:
        """Answer RemoveSchedule of schedule.proto. Raises NotFoundError, ForbiddenError."""
        known = self._own(request, caller)
        self._schedules.remove(known.name, self._committer.now_ms())
        await self._committer.written()
        return schedule_pb2.RemoveScheduleResponse(status=ok_status())

    async def run_schedule(
        self, request: schedule_pb2.ScheduleRequest, caller: Caller
    ) -> schedule_pb2.RunScheduleResponse:
        """Answer RunSchedule of schedule.proto.

        Raises:
            NotFoundError, ForbiddenError.
            RequestError: its message cannot be sent.
            TooManyRequestsError: the caller has sent all that it may, or the disk is behind.
            StoreFullError: no room now.
        """
        known, now_ms = self._own(request, caller), self._committer.now_ms()
        self._check_topic(known)
        wall_ms = self._engine.wall.at(now_ms)
        message, user = self._ticks.message(known, wall_ms), caller.call.user
        size = len(message.rest) + len(message.sys)
        self._committer.admit()
        self._engine.gate.admit(caller.client_id, key_of(user), 1, size, now_ms)
        self._engine.send([message], now_ms, user)
        await self._committer.written()
        return schedule_pb2.RunScheduleResponse(
            status=ok_status(), message_id=tick_id(known, wall_ms)
        )

    async def declare_schedules(
        self, request: schedule_pb2.DeclareSchedulesRequest, caller: Caller
    ) -> schedule_pb2.DeclareSchedulesResponse:
        """Answer DeclareSchedules of schedule.proto.

        Raises:
            BadRequestError: no app, no worker, or too many names.
            TooManyRequestsError: too many workers.
        """
        for what, label in (("app", request.app), ("worker", request.worker)):
            _check_label(what, label)
            if not label:
                raise BadRequestError(f"the {what} that declares schedules has no name")
        _check_count(request.names)
        user, now_ms = caller.call.user, self._committer.now_ms()
        known = filter(None, map(self._schedules.table.get, set(request.names)))
        names = [each.name for each in known if _may_send(user, each)]
        if request.ends:
            self._declarers.end(request.app, request.worker, now_ms)
        else:
            self._declarers.declare(request.app, request.worker, names, now_ms)
        await self._committer.written()
        return schedule_pb2.DeclareSchedulesResponse(status=ok_status())

    async def prune_schedules(
        self, request: schedule_pb2.PruneSchedulesRequest, caller: Caller
    ) -> schedule_pb2.PruneSchedulesResponse:
        """Answer PruneSchedules of schedule.proto: of those that the caller might remove.

        Raises BadRequestError: too many names, no such time, or no app whose code it is.
        """
        _check_label("app", request.app)
        _check_count(request.keep)
        if not 0 <= request.idle_ms <= MS_MAX:
            raise BadRequestError(f"idle {request.idle_ms} ms is not within 0 ms to {MS_MAX} ms")
        if request.by_code and not request.app:
            raise BadRequestError("by_code needs the app whose code it is")
        user, now_ms = caller.call.user, self._committer.now_ms()
        shown = {each.name: self._listed(each) for each in self._schedules.table.all()}
        pruned = self._declarers.prune(
            request.app,
            request.keep,
            now_ms,
            dry_run=request.dry_run,
            idle_ms=request.idle_ms,
            by_code=request.by_code,
            may=lambda schedule: _may_send(user, schedule),
        )
        await self._committer.written()
        if pruned.removed and not request.dry_run:
            log.info(
                "schedules pruned",
                extra={
                    "schedules": ", ".join(each.name for each in pruned.removed),
                    "client": caller.client_id,
                },
            )
        return schedule_pb2.PruneSchedulesResponse(
            status=ok_status(),
            removed=[shown[each.name] for each in pruned.removed],
            kept=[shown[each.name] for each in pruned.kept],
        )

    def _own(self, request: schedule_pb2.ScheduleRequest, caller: Caller) -> Schedule:
        """Find a schedule whose messages the caller might send. Raises as its callers say."""
        known = self._seen(request, caller)
        user = caller.call.user
        if user is not None:
            require(user, topic(known.topic, PUB))
        return known

    def _seen(self, request: schedule_pb2.ScheduleRequest, caller: Caller) -> Schedule:
        """Find a schedule; one that the caller may not see is not found, as one that is not there.

        Raises NotFoundError.
        """
        known = self._schedules.get(request.name)
        if not _may_see(caller.call.user, known):
            raise NotFoundError(f"schedule not found: {request.name}")
        return known

    def _wanted(self, asked: schedule_pb2.Schedule, now_ms: int) -> Schedule:
        """Read what is declared, when everything in it is checked."""
        if _NAME.fullmatch(asked.name) is None:
            raise BadRequestError(
                f"the name of a schedule has 1 to 127 of a-z A-Z 0-9 _ - . : not "
                f"{names.shown(asked.name)}"
            )
        names.check_topic(asked.topic)
        if asked.topic.startswith(INTERNAL_PREFIXES):
            raise BadRequestError(f"no schedule sends to {names.shown(asked.topic)}")
        wanted = Schedule(
            name=asked.name,
            topic=asked.topic,
            every_ms=asked.every_ms,
            cron=asked.cron.strip(),
            zone=asked.zone.strip(),
            missed=names.choice(Missed, asked.missed, "missed") or Missed.ONE,
            message=self._template(asked, now_ms),
        )
        if bool(wanted.every_ms) == bool(wanted.cron):
            raise BadRequestError(f"schedule {wanted.name} needs either every_ms or cron")
        if wanted.every_ms and not EVERY_MS_MIN <= wanted.every_ms <= MS_MAX:
            raise BadRequestError(
                f"every {wanted.every_ms} ms is not within {EVERY_MS_MIN} ms to {MS_MAX} ms"
            )
        if wanted.every_ms and wanted.zone:
            raise BadRequestError(
                f"time zone {names.shown(wanted.zone)} is for cron: an interval is as long anywhere"
            )
        self._ticks.first_after(wanted, self._engine.wall.at(now_ms))
        check_steps(wanted.cron)
        return wanted

    def _template(self, asked: schedule_pb2.Schedule, now_ms: int) -> bytes:
        """Make the message that every tick begins with; the same of the same."""
        for name in OWN_PROPERTIES:
            if name in asked.properties:
                raise IllegalPropertyKeyError(f"property {name} is the broker's to set")
        if DEDUP_PROPERTY in asked.properties:
            raise IllegalPropertyKeyError(
                f"property {DEDUP_PROPERTY}: the messages of a schedule have no dedup id, each "
                "tick is sent once"
            )
        message = definition_pb2.Message(body=asked.body, user_properties=asked.properties)
        properties = message.system_properties
        properties.tag = asked.tag
        properties.keys.extend(asked.keys)
        properties.message_group = asked.message_group
        if asked.HasField("priority"):
            properties.priority = asked.priority
        template: bytes = message.SerializeToString(deterministic=True)
        if len(template) > self._message_bytes_max:
            raise BodyTooLargeError(
                f"the message of schedule {asked.name} has {len(template)} bytes, at most "
                f"{self._message_bytes_max} are allowed (schedules.message_bytes_max)"
            )
        message.body = message.body or b"a time"
        properties.message_id = asked.name
        self._rules.check(message, self._engine.wall.at(now_ms))
        return template

    def _check_topic(self, schedule: Schedule) -> None:
        """See that its topic, if there is one, is here and takes its messages.

        Raises RequestError.
        """
        message = definition_pb2.Message.FromString(schedule.message)
        ordered = bool(message.system_properties.message_group)
        known = self._engine.catalog.topic(schedule.topic)
        validate.check_type(known, message_type(message, 0))
        if self._shards is not None:
            home = self._shards.elsewhere(schedule.topic, known, ordered=ordered)
            if home is not None:
                raise BadRequestError(
                    f"shard {home} is the home of topic {schedule.topic}, and schedules are kept "
                    "by shard 0: have it send to a topic that spreads"
                )

    def _response(self, schedule: Schedule, caller: Caller) -> schedule_pb2.ScheduleResponse:
        return schedule_pb2.ScheduleResponse(
            status=ok_status(), schedule=self._message(schedule, caller.call.user)
        )

    def _message(self, schedule: Schedule, user: User | None) -> schedule_pb2.Schedule:
        """Show a schedule; with its message if the user may read messages of its topic."""
        shown = self._listed(schedule)
        if user is None or meets(user, reading(schedule.topic)):
            _add_message(shown, schedule)
        else:
            shown.message_withheld = True
        return shown

    def _listed(self, schedule: Schedule) -> schedule_pb2.Schedule:
        """Show a schedule without its message."""
        shown = _message(schedule)
        shown.behind_ms = self._schedules.behind_ms(schedule, self._committer.now_ms())
        for app, since_ms in sorted(self._declarations.of(schedule.name).items()):
            has_run = since_ms not in (RUNNING, NO_WORKER)
            shown.declarers.add(
                app=app, since_ms=since_ms if has_run else 0, running=since_ms == RUNNING
            )
        shown.undeclared_since_ms = self._declarations.idle_since_ms(schedule.name)
        return shown


def _require_may_replace(user: User | None, schedule: Schedule) -> None:
    """Raises ForbiddenError: the name is a schedule's whose topic the user may not send to.

    A name is one schedule's in the whole broker, so that it is taken must be told.
    """
    if not _may_send(user, schedule):
        raise ForbiddenError(f"the name {schedule.name} is another user's schedule; take another")


def _may_send(user: User | None, schedule: Schedule) -> bool:
    return user is None or meets(user, topic(schedule.topic, PUB))


def _check_label(what: str, label: str) -> None:
    """Raises BadRequestError: this names no app or worker; "" does."""
    if len(label) > LABEL_CHARACTERS_MAX or not label.isprintable():
        raise BadRequestError(
            f"{what} {names.shown(label)} is no name of 1 to {LABEL_CHARACTERS_MAX} printable "
            "characters"
        )


def _check_count(given: Sequence[str]) -> None:
    if len(given) > DECLARED_MAX:
        raise BadRequestError(f"{len(given)} schedules are named; at most {DECLARED_MAX}")


def _may_see(user: User | None, schedule: Schedule) -> bool:
    return user is None or meets(user, topic(schedule.topic, PUB, BROWSE))


def _message(schedule: Schedule) -> schedule_pb2.Schedule:
    """Show all of a schedule but its message and its declarers."""
    return schedule_pb2.Schedule(
        name=schedule.name,
        topic=schedule.topic,
        every_ms=schedule.every_ms,
        cron=schedule.cron,
        zone=schedule.zone,
        missed=int(schedule.missed),
        paused=schedule.paused,
        fault=schedule.fault,
        created_at_ms=schedule.created_ms,
        changed_at_ms=schedule.changed_ms,
        next_at_ms=schedule.next_ms,
        last_at_ms=schedule.last_ms,
        ticks=schedule.ticks,
    )


def _add_message(shown: schedule_pb2.Schedule, schedule: Schedule) -> None:
    message = definition_pb2.Message.FromString(schedule.message)
    properties = message.system_properties
    shown.body = message.body
    shown.properties.update(message.user_properties)
    shown.tag = properties.tag
    shown.keys.extend(properties.keys)
    shown.message_group = properties.message_group
    if properties.HasField("priority"):
        shown.priority = properties.priority
