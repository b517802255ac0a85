"""Topics made, changed and deleted, by admins."""

from typing import Final

from starlette.responses import Response

from latermq_console.drawing.links import segment
from latermq_console.pages.sure import check_name
from latermq_console.serving.console import FormError, View
from latermq_proto.latermq.v1 import topic_pb2
from latermq_text.durations import parse_duration_ms
from latermq_text.whole import whole_topic

TYPES: Final = ("mixed", "normal", "fifo", "delay", "transaction", "priority", "lite")
QUEUES_MAX: Final = 1 << 16
NO_TIME: Final = {"retention": "forever", "unread_retention": "disk", "dedup_window": "forever"}


async def create(view: View) -> Response:
    """Make a topic."""
    name = view.field("name")
    request = topic_pb2.CreateTopicRequest(name=name, type=_type(view), queue_count=_queues(view))
    _times(view, request)
    await view.desk.call(view.desk.admin.topics.CreateTopic, request)
    return view.go(f"/topics/{segment(name)}", "good", f"topic {name} is there")


async def alter(view: View) -> Response:
    """Change what was filled in; what was left empty stays."""
    name = view.path("topic")
    request = topic_pb2.AlterTopicRequest(name=name, type=_type(view), queue_count=_queues(view))
    _times(view, request)
    if request == topic_pb2.AlterTopicRequest(name=name):
        raise FormError("say what to change")
    await view.desk.call(view.desk.admin.topics.AlterTopic, request)
    return view.go(f"/topics/{segment(name)}", "good", f"topic {name} changed")


async def plan_delete(view: View) -> Response:
    """Show what would go with a topic. Nothing is changed."""
    request = topic_pb2.GetTopicRequest(name=view.path("topic"))
    method = view.desk.admin.topics.GetTopic
    parts = await view.shards.each(method, lambda _: request, age_s=0)
    topic = whole_topic([answer.topic for _, answer in parts.answers])
    return view.render("topic_delete.html", topic=topic, silent=parts.silent)


async def delete(view: View) -> Response:
    """Delete a topic whose name was typed."""
    name = view.path("topic")
    check_name(view, name)
    request = topic_pb2.DeleteTopicRequest(name=name)
    await view.desk.call(view.desk.admin.topics.DeleteTopic, request)
    return view.go("/topics", "good", f"topic {name} deleted")


def _type(view: View) -> str:
    word = view.field("type")
    if word and word not in TYPES:
        raise FormError(f"the type is one of {', '.join(TYPES)}")
    return (word or "topic_type_unspecified").upper()


def _queues(view: View) -> int:
    return view.whole("queues", QUEUES_MAX)


def _times(view: View, request: topic_pb2.CreateTopicRequest | topic_pb2.AlterTopicRequest) -> None:
    """Fill in how long messages stay and ids count, where that was told. Raises FormError."""
    for field, word in NO_TIME.items():
        text = view.field(field)
        if not text:
            continue
        words = {"default": -1, word: 0}
        try:
            time_ms = words[text] if text in words else parse_duration_ms(text)
        except ValueError as error:
            raise FormError(f"{field.replace('_', ' ')}: {error}") from None
        setattr(request, f"{field}_ms", time_ms)
