"""A group's policy changed, the group moved in time, or deleted."""

import asyncio
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from latermq.admin import backoff_message, read_backoff
from latermq.backoff import Backoff
from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.drawing.links import segment
from latermq_console.pages.groups import QUEUES_MAX, lag_by_queue, whole_of
from latermq_console.pages.letter_filter import instant_ms
from latermq_console.pages.sure import check_name, is_sure
from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import words_of
from latermq_console.serving.console import FormError, View
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import group_pb2
from latermq_text.attempts import UNLIMITED, UNLIMITED_WORD
from latermq_text.durations import parse_duration_ms

ATTEMPTS_MAX: Final = 1_000_000
TO_MS_MAX: Final = 1 << 53
DEFAULT: Final = "default"
ON_DEAD: Final = {"skip": group_pb2.SKIP, "park": group_pb2.PARK}


class Move(NamedTuple):
    """Where a group is in a queue, and where it would go on. `offset` -1: it has not read it."""

    shard: int
    queue_id: int
    offset: int
    target: int

    @property
    def again(self) -> int:
        return max(0, self.offset - self.target)

    @property
    def skipped(self) -> int:
        return max(0, self.target - max(0, self.offset))


async def alter(view: View) -> Response:
    """Change what happens to a group's failed messages; what is as it was stays."""
    name, desk = view.path("group"), view.desk
    answer = await desk.call(desk.admin.groups.GetGroup, group_pb2.GetGroupRequest(name=name))
    before = answer.group
    request = group_pb2.AlterGroupRequest(name=name)
    unlimited = view.field("max_attempts") == UNLIMITED_WORD
    attempts = UNLIMITED if unlimited else view.whole("max_attempts", ATTEMPTS_MAX)
    if attempts and attempts != before.max_attempts:
        request.max_attempts = attempts
    backoff = view.field("backoff")
    if backoff and backoff != backoff_words(before):
        if backoff == DEFAULT:
            request.clear_backoff = True
        else:
            try:
                request.backoff.CopyFrom(backoff_message(Backoff(backoff)))
            except ValueError as error:
                raise FormError(str(error)) from None
    on_dead = ON_DEAD.get(view.field("on_dead"), group_pb2.ON_DEAD_UNSPECIFIED)
    if on_dead != before.on_dead:
        request.on_dead = on_dead
    if request == group_pb2.AlterGroupRequest(name=name):
        raise FormError("say what to change")
    await desk.call(desk.admin.groups.AlterGroup, request)
    return view.go(f"/groups/{segment(name)}", "good", f"policy of group {name} changed")


async def plan_reset(view: View) -> Response:
    """Show what moving a group to another time in a topic would do. Nothing is changed."""
    name, topic = view.path("group"), view.asked("topic")
    group, _ = await whole_of(view, name, age_s=0)
    progress = next((each for each in group.topics if each.topic == topic), None)
    to_ms = _target_ms(view.asked("to"))
    desks = await view.shards.desks()
    planned = await asyncio.gather(
        *(_moves(each, number, name, topic, to_ms) for number, each in desks.items())
    )
    return view.render(
        "group_reset.html",
        group=name,
        topic=topic,
        to_ms=to_ms,
        moves=[move for moves, _ in planned for move in moves],
        shown_all=all(len(moves) < QUEUES_MAX for moves, _ in planned),
        problem=next((problem for _, problem in planned if problem), ""),
        several=len(desks) > 1,
        progress=progress,
    )


async def reset(view: View) -> Response:
    """Move a group to another time in a topic, in every shard, as its plan told."""
    name, topic = view.path("group"), view.field("topic")
    if not is_sure(view):
        raise FormError("nothing was changed: say that you are sure")
    request = group_pb2.ResetGroupRequest(
        name=name, topic=topic, to_ms=view.whole("to_ms", TO_MS_MAX)
    )
    places, failed = [], []
    desks = await view.shards.desks()
    for number, desk in desks.items():
        try:
            answer = await desk.call(desk.admin.groups.ResetGroup, request)
        except LaterMQError as error:  # what other shards did stays done
            if len(desks) == 1:
                raise
            failed.append(f"not in shard {number}: {words_of(error)}")
            continue
        offsets = ", ".join(f"{offset:,}" for offset in answer.offsets[:QUEUES_MAX])
        places.append(f"offset {offsets}" + f" in shard {number}" * (len(desks) > 1))
    text = f"{name} was not moved"
    if places:
        text = f"{name} goes on in {topic} from {', '.join(places)}"
    return view.go(
        f"/groups/{segment(name)}", "bad" if failed else "good", "; ".join([text, *failed])
    )


async def plan_delete(view: View) -> Response:
    """Show what would go with a group. Nothing is changed."""
    group, parts = await whole_of(view, view.path("group"), age_s=0)
    return view.render("group_delete.html", group=group, silent=parts.silent)


async def delete(view: View) -> Response:
    """Delete a group whose name was typed."""
    name = view.path("group")
    check_name(view, name)
    request = group_pb2.DeleteGroupRequest(name=name)
    await view.desk.call(view.desk.admin.groups.DeleteGroup, request)
    return view.go("/groups", "good", f"group {name} deleted; its dead letters stay")


def backoff_words(group: group_pb2.Group) -> str:
    """Write a group's backoff as the form takes it."""
    return str(read_backoff(group.backoff) or DEFAULT)


def _target_ms(text: str) -> int:
    """Read earliest as 0, else an instant or how long ago. Raises FormError."""
    if text == "earliest":
        return 0
    if text == "now":
        return clock.now_ms()
    try:
        return clock.now_ms() - parse_duration_ms(text)
    except ValueError:
        ms = instant_ms(text)
    if not ms:
        raise FormError("say where to: earliest, now, 1h for an hour ago, or 2026-05-01T18:30")
    return ms


async def _moves(
    desk: Desk, shard: int, group: str, topic: str, to_ms: int
) -> tuple[list[Move], str]:
    """Return the moves by queue, or why they are not known."""
    lags, problem = await lag_by_queue(desk, shard, group, topic)
    try:
        targets = await asyncio.gather(
            *(_offset_at(desk, topic, each.queue_id, to_ms) for each in lags)
        )
    except LaterMQError as error:
        return [], words_of(error)
    moves = [
        Move(shard, lag.queue_id, lag.offset, target)
        for lag, target in zip(lags, targets, strict=True)
    ]
    return moves, problem


async def _offset_at(desk: Desk, topic: str, queue_id: int, to_ms: int) -> int:
    request = service_pb2.QueryOffsetRequest(
        message_queue=definition_pb2.MessageQueue(
            topic=definition_pb2.Resource(name=topic), id=queue_id
        ),
        query_offset_policy=definition_pb2.TIMESTAMP if to_ms else definition_pb2.BEGINNING,
    )
    if to_ms:
        request.timestamp.FromMilliseconds(to_ms)
    answer: Any = await desk.look(desk.admin.messaging.QueryOffset, request)
    return int(answer.offset)
