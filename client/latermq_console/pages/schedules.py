"""Schedules: when each ticks, what it did; pause, resume and remove them."""

from typing import Final

from starlette.responses import Response

from latermq_console.pages.sure import is_sure
from latermq_console.serving.console import FormError, View
from latermq_proto.latermq.v1 import schedule_pb2
from latermq_text.durations import format_ticks

PAGE: Final = 50
DONE_WORDS: Final = {"pause": "paused", "resume": "resumed", "remove": "removed"}


async def schedules(view: View) -> Response:
    """List those that send to topics which the user may use, by name. Raises LaterMQError."""
    request = schedule_pb2.ListSchedulesRequest(page_size=PAGE, page_token=view.asked("after"))
    answer = await view.desk.look(view.desk.admin.schedules.ListSchedules, request)
    return view.render(
        "schedules.html",
        schedules=[
            (each, format_ticks(each.every_ms, each.cron, each.zone)) for each in answer.schedules
        ],
        token=answer.next_page_token,
        after=view.asked("after"),
    )


async def change(view: View) -> Response:
    """Pause, resume or remove one; ask first before it is gone. Raises FormError, LaterMQError."""
    verb, name = view.field("verb"), view.field("name")
    back = view.back("/schedules")
    service = view.desk.admin.schedules
    methods = {
        "pause": service.PauseSchedule,
        "resume": service.ResumeSchedule,
        "remove": service.RemoveSchedule,
    }
    if verb not in methods:
        raise FormError("say pause, resume or remove")
    if verb == "remove" and not is_sure(view):
        return view.render("schedule_sure.html", name=name, back=back)
    await view.desk.call(methods[verb], schedule_pb2.ScheduleRequest(name=name))
    return view.go(back, "good", f"schedule {name} {DONE_WORDS[verb]}")
