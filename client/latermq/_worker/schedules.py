"""Schedules that an application declares, and functions that are called with their ticks."""

import inspect
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from latermq._consuming.calling import refuse_generator
from latermq._values import arguments
from latermq._values.durations import span_of
from latermq._worker.calls import Function, Shape
from latermq._worker.payload_types import annotation_of, called, name_of
from latermq._worker.payloads import Codec
from latermq.admin import AsyncAdmin
from latermq.message import Message
from latermq_proto.latermq.v1 import schedule_pb2
from latermq_text.durations import format_exact

Missed: TypeAlias = Literal["skip", "one", "all"]
MILLISECOND: Final = timedelta(milliseconds=1)
EVERY_MIN: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule that is needed: by `every`, or by `cron` in the time zone `tz`."""

    name: str
    topic: str
    every: timedelta | str | None = None
    cron: str = ""
    tz: str = ""
    missed: Missed = "one"
    message: Message | None = None

    def __post_init__(self) -> None:
        arguments.name_of("schedule", self.name)
        arguments.name_of("topic", self.topic)
        arguments.any_text("cron", self.cron)
        arguments.any_text("tz", self.tz)
        if self.missed not in get_args(Missed):
            raise ValueError(f"missed must be one of {', '.join(get_args(Missed))}: {self.missed}")
        if (self.every is None) == (not self.cron):
            raise ValueError(f"schedule {self.name} needs either every or cron")
        if self.every is not None and span_of("every", self.every) < EVERY_MIN:
            raise ValueError(f"every must be at least a second, not {self.every}")
        for name in ("delay", "deliver_at", "lite_topic", "dedup_id"):
            if self.message is not None and getattr(self.message, name) is not None:
                raise ValueError(f"the message of a schedule has no {name}")

    def wanted(self) -> schedule_pb2.Schedule:
        """Return what the broker is asked for."""
        every = timedelta(0) if self.every is None else span_of("every", self.every)
        asked = schedule_pb2.Schedule(
            name=self.name,
            topic=self.topic,
            every_ms=every // MILLISECOND,
            cron=self.cron,
            zone=self.tz,
            missed=self.missed.upper(),
        )
        message = self.message
        if message is not None:
            asked.body = message.body
            asked.tag = message.tag or ""
            asked.keys.extend(message.keys)
            asked.properties.update(message.properties)
            asked.message_group = message.message_group or ""
            if message.priority is not None:
                asked.priority = message.priority
        return asked


async def put_schedule(
    admin: AsyncAdmin, schedule: Schedule, app: str, *, alter: bool
) -> tuple[str, str]:
    """Make a schedule that is not there, alter one that differs if that is asked.

    Args:
        app: whose code has it.
    Returns:
        What was done, and what is left otherwise than the code has it; "" for neither.
    """
    wanted = schedule.wanted()
    request = schedule_pb2.PutScheduleRequest(schedule=wanted, keep=not alter, app=app)
    put = await admin.call(admin.schedules.PutSchedule, request)
    what = f"schedule {schedule.name}"
    if not put.HasField("before"):
        return f"{what} made: {_when(wanted)}", ""
    differences = "; ".join(_differences(put.differences, wanted, put.before))
    if not differences:
        return "", ""
    if alter:
        return f"{what} altered: {differences}", ""
    others = ", ".join(_others(put.before, app))
    return "", f"{what}: {differences}{f'; {others} declares it, too' if others else ''}"


async def prune_schedules(admin: AsyncAdmin, app: str, names: Collection[str]) -> list[str]:
    """Remove schedules that the app declared and has no more; say what was done, a line each."""
    request = schedule_pb2.PruneSchedulesRequest(app=app, keep=names, by_code=True)
    pruned = await admin.call(admin.schedules.PruneSchedules, request)
    done = [f"schedule {each.name} removed: {app} declares it no more" for each in pruned.removed]
    for each in pruned.kept:
        others = ", ".join(_others(each, app)) or "somebody by hand"
        if any(claim.app == app and claim.running for claim in each.declarers):
            others = f"a running worker of {app}"
        done.append(f"schedule {each.name} kept: {others} has it")
    return done


def _others(schedule: schedule_pb2.Schedule, app: str) -> Iterator[str]:
    """Name who else declares it; nobody does of one that was made by hand."""
    for each in schedule.declarers:
        if each.app not in ("", app):
            yield each.app


def _differences(
    names: Collection[str], wanted: schedule_pb2.Schedule, there: schedule_pb2.Schedule
) -> Iterator[str]:
    if {"every_ms", "cron", "zone"} & set(names):
        yield f"{_when(there)} at the broker, {_when(wanted)} in the code"
    if "missed" in names:
        name = schedule_pb2.Schedule.Missed.Name
        there_word, wanted_word = name(there.missed).lower(), name(wanted.missed).lower()
        yield f"missed: {there_word} at the broker, {wanted_word} in the code"
    if "topic" in names:
        yield f"topic: {there.topic} at the broker, {wanted.topic} in the code"
    if "message" in names:
        yield "another message"


def _when(schedule: schedule_pb2.Schedule) -> str:
    if schedule.every_ms:
        return f"every {format_exact(schedule.every_ms)}"
    return f"{schedule.cron} {schedule.zone or 'UTC'}"


def of_ticks(function: Function) -> tuple[Function, Shape] | None:
    """Read a function that takes nothing, or a tick's time; None: it takes something else."""
    if not callable(function):
        raise arguments.wrong("a schedule's function", "a function", function)
    refuse_generator(called(function))
    parameters = list(inspect.signature(function).parameters.values())
    waits = inspect.iscoroutinefunction(called(function))
    if not parameters:
        return _without_time(function, waits=waits), Shape(TICK, with_delivery=False, waits=waits)
    if len(parameters) == 1 and annotation_of(function, parameters[0]) is datetime:
        return function, Shape(TICK, with_delivery=False, waits=waits)
    return None


def _without_time(function: Function, *, waits: bool) -> Function:
    """Make one that may be called with a tick's time, which the function does not want."""

    async def awaited(*_: datetime) -> Any:
        return await function()

    def plainly(*_: datetime) -> Any:
        return function()

    made: Any = awaited if waits else plainly
    made.__wrapped__ = function
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(function, name, None) or getattr(made, name))
    made.__name__ = name_of(function)
    returns = getattr(called(function), "__annotations__", {}).get("return")
    made.__annotations__ = {"return": returns}
    without: Function = made
    return without


def _text_of(tick: datetime) -> bytes:
    return tick.isoformat().encode()


def _time_of(body: bytes) -> datetime:
    return datetime.fromisoformat(body.decode())


TICK: Final = Codec[datetime]("", _text_of, _time_of)  # of a body that the broker makes
