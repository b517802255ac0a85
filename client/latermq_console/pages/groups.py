"""Groups and topics: how far behind, what is held, which policy."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from starlette.responses import Response

from latermq.admin import read_backoff
from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.drawing import words
from latermq_console.drawing.figures import Figure, figure
from latermq_console.drawing.ladder import ladder_of
from latermq_console.drawing.links import segment
from latermq_console.pages.clients import KINDS
from latermq_console.pages.past import past_of, title_of
from latermq_console.reading.desk import LOOK_S, Desk
from latermq_console.reading.history import Past
from latermq_console.reading.jobs import words_of
from latermq_console.reading.shards import Listing, Parts
from latermq_console.reading.watch import GroupState
from latermq_console.serving.console import View, whole_number
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import client_pb2, group_pb2, pending_pb2, topic_pb2
from latermq_text.durations import format_duration
from latermq_text.whole import whole_group, whole_topic

FIRST_LOOK_S: Final = 1.5
PAGE: Final = 50
LISTED_S: Final = 5.0
SEEN_S: Final = 15.0  # of many groups: so old may be what consumers of one hold
QUEUES_MAX: Final = 32  # of one topic, whose lag is asked for one by one
TOPICS_MAX: Final = 4  # of one group, likewise
SHOWN_MAX: Final = 50
QUEUES_SHOWN: Final = 256  # of one topic, in all shards


class QueueLag(NamedTuple):
    """How far a group is in a queue; offset -1: it has not read it yet."""

    shard: int
    queue_id: int
    offset: int
    next_offset: int
    lag: int


async def groups(view: View) -> Response:
    """List the groups, the most behind first."""
    watch, text = view.watch, view.asked("q").casefold()
    await watch.ready(FIRST_LOOK_S)
    states = [state for state in watch.groups.values() if text in state.name.casefold()]
    states.sort(key=lambda state: (-state.lag, -state.in_flight - state.backoff, state.name))
    page = whole_number(view.asked("page") or "0", "the page")
    return view.render(
        "groups.html",
        rows=states[page * PAGE : (page + 1) * PAGE],
        count=len(states),
        page=page,
        pages=-(-len(states) // PAGE),
        text=view.asked("q"),
        error=watch.groups_error,
        more=watch.more_groups,
        silent=watch.groups_silent,
    )


async def group(view: View) -> Response:
    """Show a group: how far it is, what its consumers hold, its policy."""
    desk, shards, name = view.desk, view.shards, view.path("group")
    read_group, parts = await whole_of(view, name)
    held = pending_pb2.ListPendingRequest(
        filter=pending_pb2.PendingFilter(group=name, kind=pending_pb2.IN_FLIGHT),
        page_size=SHOWN_MAX,
    )
    seen_s = SEEN_S if view.watch.many else LOOK_S
    holding, holding_error = await _tried(
        shards.listed(
            desk.admin.pending.ListPending, held, "messages", lambda each: each.due_at_ms,
            age_s=seen_s,
        )
    )  # fmt: skip
    blocked, blocked_error = None, ""
    if read_group.fifo:
        listing = group_pb2.ListMessageGroupsRequest(group=name, page_size=SHOWN_MAX)
        method = desk.admin.groups.ListMessageGroups
        blocked, blocked_error = await _tried(
            shards.listed(method, listing, "message_groups", lambda each: (each.topic, each.name))
        )
    consumers, consumers_error = await _tried(
        shards.listed(
            desk.admin.clients.ListClients,
            client_pb2.ListClientsRequest(group=name, page_size=SHOWN_MAX),
            "clients",
            lambda each: each.client_id,
            age_s=seen_s,
        )
    )
    past = await past_of(view, name)
    topics = sorted(read_group.topics, key=lambda each: -each.ready_count)
    desks = await shards.desks()
    heard = [(shard, desks[shard]) for shard, _ in parts.answers]
    lags = await asyncio.gather(
        *(_lag_of_shards(heard, name, each.topic) for each in topics[:TOPICS_MAX])
    )
    return view.render(
        "group.html",
        group=read_group,
        of_shards=[(shard, answer.group) for shard, answer in parts.answers],
        several=parts.several,
        silent=parts.silent,
        past=past,
        kept=title_of(past, "Lately"),
        figures=_figures(read_group, view.watch.groups.get(name), past),
        topics=topics,
        lags=dict(zip([each.topic for each in topics], lags, strict=False)),
        backoff=str(read_backoff(read_group.backoff) or "default"),
        ladder=ladder_of(read_group),
        holding=holding,
        holding_error=holding_error,
        blocked=blocked,
        blocked_error=blocked_error,
        consumers=consumers,
        consumers_error=consumers_error,
        kinds=KINDS,
        parks=read_group.on_dead == group_pb2.PARK,
        states=group_pb2.MessageGroup.State,
    )


async def topics(view: View) -> Response:
    """List the topics, by name."""
    request = topic_pb2.ListTopicsRequest(page_size=PAGE, page_token=view.asked("after"))
    method = view.desk.admin.topics.ListTopics
    parts = await view.shards.each(method, lambda _: request, age_s=LISTED_S)
    listed, token = _whole_page([answer for _, answer in parts.answers])
    return view.render(
        "topics.html", topics=listed, token=token, after=view.asked("after"),
        types=topic_pb2.TopicType, silent=parts.silent,
    )  # fmt: skip


async def topic(view: View) -> Response:
    """Show a topic: its queues, and who reads it."""
    request = topic_pb2.GetTopicRequest(name=view.path("topic"))
    parts = await view.shards.each(view.desk.admin.topics.GetTopic, lambda _: request)
    queues = [(shard, queue) for shard, answer in parts.answers for queue in answer.topic.queues]
    return view.render(
        "topic.html",
        topic=whole_topic([answer.topic for _, answer in parts.answers]),
        queues=queues[:QUEUES_SHOWN],
        several=parts.several,
        silent=parts.silent,
        groups=view.watch.groups,
        types=topic_pb2.TopicType,
        shown=SHOWN_MAX,
    )


async def whole_of(
    view: View, name: str, *, age_s: float = LOOK_S
) -> tuple[group_pb2.Group, Parts]:
    """Return what all shards that answer have of a group, and each for itself. Raises as `each`."""
    request = group_pb2.GetGroupRequest(name=name)
    method = view.desk.admin.groups.GetGroup
    parts = await view.shards.each(method, lambda _: request, age_s=age_s)
    return whole_group([answer.group for _, answer in parts.answers]), parts


def _whole_page(parts: Sequence[topic_pb2.ListTopicsResponse]) -> tuple[list[Any], str]:
    """Join the pages of all shards up to where the first of them ends; and what goes on there."""
    more = [part for part in parts if part.next_page_token]
    first = min(more, key=lambda part: part.topics[-1].name, default=None)
    by_name: dict[str, list[topic_pb2.Topic]] = {}
    for part in parts:
        for each in part.topics:
            if first is None or each.name <= first.topics[-1].name:
                by_name.setdefault(each.name, []).append(each)
    topics = [whole_topic(by_name[name]) for name in sorted(by_name)]
    return topics, first.next_page_token if first is not None else ""


async def _tried(listing: Awaitable[Listing]) -> tuple[Listing | None, str]:
    """Return a part of a page, or why there is none."""
    try:
        return await listing, ""
    except LaterMQError as error:
        return None, words_of(error)


def _figures(group: group_pb2.Group, state: GroupState | None, past: Past | None) -> list[Figure]:
    """Return a group's figures: with lines of what the console remembers, or all of Prometheus's.

    Args:
        state: None of a group that this user's watch does not see.
    """
    lines = past.lines if past is not None else {}
    if not lines and state is not None:
        lines = {"lag": [*state.lags], "dead": [*state.dead_line()]}
    progress = group.progress
    oldest_ms = progress.oldest_unread_at_ms
    waited_ms = max(0, clock.now_ms() - oldest_ms) if oldest_ms else 0
    dead = group.dead_letter_count

    def line(name: str) -> list[float | None]:
        return lines.get(name, [])

    def last(name: str, write: Callable[[float], str]) -> str:
        known = [each for each in line(name) if each is not None]
        return write(known[-1]) if known else "-"

    figures = [
        figure("Lag", words.short(progress.ready_count), line("lag"), words.short,
               "ready and not yet received"),
        figure("Oldest", format_duration(waited_ms) if oldest_ms else "-", line("oldest_ms"),
               format_duration, "so long the oldest unread one waits"),
        figure("Done", words.rate(progress.out_per_s), line("acknowledged"), words.rate,
               "acknowledged", unit="/s"),
        figure("Failing", words.rate(progress.failed_per_s), line("failed"), words.rate,
               "attempts that ended badly", unit="/s", kind="warn"),
        figure("Dead letters", words.short(dead), line("dead"), words.short,
               "neither redriven nor dropped", kind="bad", level="bad" if dead else "",
               href=f"/dead/{segment(group.name)}" if dead else ""),
    ]  # fmt: skip
    if past is not None and past.lines:  # what the broker does not tell of a moment
        figures[2:2] = [
            figure("Delivered", last("delivered", words.rate), line("delivered"), words.rate,
                   "each attempt counts", unit="/s"),
            figure("Send to done", last("lateness_ms", format_duration), line("lateness_ms"),
                   format_duration, "99 % are done within"),
        ]  # fmt: skip
    return figures


async def _lag_of_shards(
    desks: Sequence[tuple[int, Desk]], group: str, topic: str
) -> tuple[list[QueueLag], str]:
    """Return the lag of each queue of each shard, or why that of one is not known."""
    parts = await asyncio.gather(
        *(lag_by_queue(desk, shard, group, topic) for shard, desk in desks)
    )
    problem = next((problem for _, problem in parts if problem), "")
    return [row for rows, _ in parts for row in rows], problem


async def lag_by_queue(
    desk: Desk, shard: int, group: str, topic: str
) -> tuple[list[QueueLag], str]:
    """Return the lag of each queue, or why it is not known."""
    request = topic_pb2.GetTopicRequest(name=topic)
    answer, error = await desk.tried(desk.admin.topics.GetTopic, request, age_s=LISTED_S)
    if answer is None:
        return [], words_of(error) if error else ""
    queues = answer.topic.queues[:QUEUES_MAX]
    try:
        rows = await asyncio.gather(
            *(_queue_lag(desk, shard, group, topic, each) for each in queues)
        )
    except LaterMQError as refused:
        return [], words_of(refused)
    return list(rows), ""


async def _queue_lag(desk: Desk, shard: int, group: str, topic: str, queue: Any) -> QueueLag:
    """Raises LaterMQError: the user may not be told."""
    request: Message = service_pb2.GetOffsetRequest(
        group=definition_pb2.Resource(name=group),
        message_queue=definition_pb2.MessageQueue(
            topic=definition_pb2.Resource(name=topic), id=queue.queue_id
        ),
    )
    answer, error = await desk.tried(desk.admin.messaging.GetOffset, request, age_s=LISTED_S)
    if error is not None and error.code != definition_pb2.OFFSET_NOT_FOUND:
        raise error
    if answer is None:
        unread = queue.next_offset - queue.earliest_offset
        return QueueLag(shard, queue.queue_id, -1, queue.next_offset, unread)
    lag = max(0, queue.next_offset - max(answer.offset, queue.earliest_offset))
    return QueueLag(shard, queue.queue_id, answer.offset, queue.next_offset, lag)
