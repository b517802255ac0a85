"""Messages: found by id or key, and one message's story in each group."""

import asyncio
import re
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from latermq.errors import ForbiddenError, LaterMQError
from latermq_console.drawing import bodies, life
from latermq_console.drawing.words import counted
from latermq_console.drawing.words import size as bytes_words
from latermq_console.reading.jobs import words_of
from latermq_console.reading.shards import Listing, Parts
from latermq_console.serving.console import View
from latermq_proto.latermq.v1 import message_pb2, topic_pb2

ID: Final = re.compile(r"[0-9A-Fa-f]{32,40}")
TOPICS_SEARCHED_MAX: Final = 30  # for a key, where no topic is named
FOUND_MAX: Final = 50
TEXT_MAX: Final = 256
TOPICS_S: Final = 5.0
LIVES_SHOWN_MAX: Final = 8  # messages with the same id, of which a broker names up to 32
FATES_SHOWN_MAX: Final = 200  # groups of one message
BODIES_BYTES_MAX: Final = (
    8 << 20
)  # of all messages with an id, as they are stored; more are not read


async def search(view: View) -> Response:
    """Find messages by key, in a topic or in all of them; an id leads to its message."""
    text, topic = view.asked("q")[:TEXT_MAX], view.asked("topic")[:TEXT_MAX]
    if ID.fullmatch(text):
        return view.go(f"/messages/{quote(text, safe='')}")
    names, note = await _topics(view)
    messages: list[tuple[int, message_pb2.FoundMessage]] = []
    silent: list[str] = []
    several = False
    if text:
        wanted = [topic] if topic else names[:TOPICS_SEARCHED_MAX]
        if not topic and len(names) > TOPICS_SEARCHED_MAX:
            note = f"Looked in the first {TOPICS_SEARCHED_MAX} topics; name one for the others."
        pages = await asyncio.gather(*(_find(view, each, text) for each in wanted))
        messages = [message for page in pages for message in page.rows]
        messages.sort(key=lambda row: -row[1].stored_at_ms)
        silent = list(dict.fromkeys(each for page in pages for each in page.silent))
        several = any(page.several for page in pages)
    return view.render(
        "messages.html", text=text, topic=topic, topics=names, note=note,
        messages=messages[:FOUND_MAX], count=len(messages), silent=silent, several=several,
    )  # fmt: skip


async def message(view: View) -> Response:
    """Tell where a message is, for each group that reads its topic."""
    parts, hidden = await _described(view)
    rows = []
    lives = [(shard, story) for shard, answer in parts.answers for story in answer.lives]
    body_max = bodies.SHOWN_BYTES_MAX // max(1, min(len(lives), LIVES_SHOWN_MAX))
    for shard, each in lives[:LIVES_SHOWN_MAX]:
        groups = each.groups[:FATES_SHOWN_MAX]
        fates = [life.fate_of(group, expired=each.expired) for group in groups]
        shown = each.message
        rows.append((
            each, life.whereabouts(each), fates,
            bodies.body_of(shown.body, shown.body_encoding, body_max),
            bodies.properties_of(shown.properties), f"@{shard}" if parts.several else "",
        ))  # fmt: skip
    damaged = sum(len(answer.damaged_positions) for _, answer in parts.answers)
    return view.render(
        "message.html", id=view.path("id"), rows=rows, hidden=hidden,
        damaged=counted(damaged, "message") if damaged else "", silent=parts.silent,
        count=len(lives),
    )  # fmt: skip


async def _described(view: View) -> tuple[Parts, str]:
    """Return what the shards know of a message, and why its body is not shown; "": it is."""
    method, hidden = view.desk.admin.messages.DescribeMessage, ""
    request = message_pb2.DescribeMessageRequest(
        message_id=view.path("id"), topic=view.asked("topic")
    )
    bare = await view.shards.each(method, lambda _: request)
    size = sum(each.message.body_size for _, answer in bare.answers for each in answer.lives)
    if size > BODIES_BYTES_MAX:
        return bare, f"{bytes_words(size)} are too much for a page"
    whole = message_pb2.DescribeMessageRequest()
    whole.CopyFrom(request)
    whole.with_body = True
    try:
        async with view.console.bodies:
            return await view.shards.each(method, lambda _: whole), ""
    except ForbiddenError as error:
        hidden = words_of(error)
    return bare, hidden


async def _topics(view: View) -> tuple[list[str], str]:
    """Return the topics' names, and why there may be more or none."""
    desk = view.desk
    request = topic_pb2.ListTopicsRequest(page_size=1_000)
    answer, error = await desk.tried(desk.admin.topics.ListTopics, request, age_s=TOPICS_S)
    if answer is None:
        return [], words_of(error) if error else ""
    return [topic.name for topic in answer.topics], ""


async def _find(view: View, topic: str, key: str) -> Listing:
    """Return a topic's messages with a key; none where this user may not look, unless it is named.

    Raises:
        LaterMQError: of the one topic that was named.
    """
    desk = view.desk
    request = message_pb2.FindMessagesRequest(topic=topic, key=key, page_size=FOUND_MAX)
    try:
        return await view.shards.listed(
            desk.admin.messages.FindMessages, request, "messages", lambda each: each.stored_at_ms
        )
    except LaterMQError:
        if topic == view.asked("topic"):
            raise
        return Listing([], "", [], several=False)
