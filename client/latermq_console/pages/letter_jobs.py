"""Redriving and dropping: a dry run first, then a job one can watch, stop and go on from."""

from dataclasses import replace
from typing import Final

from starlette.responses import Response

from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.drawing.links import segment
from latermq_console.drawing.words import counted
from latermq_console.pages.letter_filter import Asked, asked_in_form, asked_of
from latermq_console.pages.sure import is_sure
from latermq_console.reading.jobs import (
    RATE_MAX,
    Job,
    Left,
    Plan,
    TooManyJobsError,
    dry_run,
    offsets_filter,
    words_of,
)
from latermq_console.serving.console import FormError, View, whole_number
from latermq_proto.latermq.v1 import dead_letter_pb2, message_pb2

VERBS: Final = ("redrive", "drop")
COUNT_MAX: Final = 100_000_000
CHOSEN_MAX: Final = 1_000
USUAL_RATE: Final = 50
LEFT_S: Final = 60.0  # how old the count of what a job left may be


async def plan(view: View) -> Response:
    """Show what a redrive or a drop would change, and ask how."""
    place, verb = view.path("group"), _verb(view.asked("verb"))
    group, desk = await view.whose(place)
    chosen = _offsets(view.request.query_params.getlist("offset"))
    asked = Asked() if chosen else asked_of(view)
    if not asked.changeable:
        raise FormError("only letters that are dead can be redriven or dropped")
    made = _plan(group, verb, asked, chosen)
    count, whole = await dry_run(desk, made)
    return view.render(
        "dead_plan.html",
        place=place, group=group, verb=verb, asked=asked, kept=asked.frozen().query(),
        chosen=chosen, count=count, whole=whole,
        rate=min(USUAL_RATE, RATE_MAX), first=view.asked("first") == "1",
    )  # fmt: skip


async def begin(view: View) -> Response:
    """Begin the job, and show it. Raises FormError: a field is wrong, or a drop not confirmed."""
    place, verb = view.path("group"), _verb(view.field("verb"))
    if verb == "drop" and not is_sure(view):
        raise FormError("nothing was dropped: say that you want them gone for good")
    group, desk = await view.whose(place)
    chosen = _offsets(view.form.get("offset", []))
    asked = Asked() if chosen else asked_in_form(view)
    count_max = 1 if view.field("amount") == "one" else view.whole("count_max", COUNT_MAX)
    made = _plan(
        group, verb, asked, chosen,
        to_topic=view.field("to_topic"), rate=view.whole("rate", RATE_MAX), count_max=count_max,
    )  # fmt: skip
    expected = view.whole("expected", COUNT_MAX)
    expected = min(expected, count_max) if count_max else expected
    again = asked.query() or {"state": "dead"} if not chosen else {}
    about = asked.words() if not chosen else f"{counted(len(chosen), 'chosen letter')}"
    try:
        job = view.console.jobs.begin(desk, place, made, about, again, expected)
    except TooManyJobsError as error:
        return view.go(view.back("/jobs"), "bad", f"{error}; wait for one, or stop one.")
    return view.go(f"/jobs/{job.id}")


async def jobs(view: View) -> Response:
    """List this user's jobs."""
    return view.render("jobs.html", jobs=view.console.jobs.of_user(view.session.user))


async def show(view: View) -> Response:
    """Show how far a job is, and what became of its messages."""
    job = view.console.jobs.get(view.session.user, view.path("id"))
    if job is None:
        words = "The console keeps the last jobs in memory, and this is none of yours."
        return view.console.error(view, 404, "No such job", words)
    fates = await _fates(view, job) if not job.running else []
    left = Left(0, True)
    if not job.running and job.again and job.plan.count_max:
        left = await _left(view, job)
    return view.render("job.html", job=job, fates=fates, left=left, rate=USUAL_RATE)


async def stop(view: View) -> Response:
    """End a job between two letters."""
    job = view.console.jobs.get(view.session.user, view.path("id"))
    if job is not None and job.running:
        await view.console.jobs.stop(job)
    return view.go(f"/jobs/{segment(view.path('id'))}")


async def _left(view: View, job: Job) -> Left:
    """Count what a job left, seldom: the broker may have to read each letter for it."""
    now_s = clock.monotonic_s()
    if job.left is None or now_s - job.left_s >= LEFT_S:
        job.left_s = now_s  # before: another tab is not to count at the same time
        try:
            _, desk = await view.whose(job.place)
            job.left = Left(*await dry_run(desk, replace(job.plan, count_max=0)))
        except LaterMQError:
            job.left = None
    return job.left or Left(0, False)


async def _fates(view: View, job: Job) -> list[tuple[str, str, str]]:
    """Tell of each message that is named: id, what it is now for the group, in a word."""
    if job.plan.verb == "drop" or not job.changed:
        return []
    _, desk = await view.whose(job.place)
    messages = desk.admin.messages
    rows = []
    for message_id, topic in job.messages[: job.changed]:
        request = message_pb2.DescribeMessageRequest(message_id=message_id, topic=topic)
        answer, error = await desk.tried(messages.DescribeMessage, request)
        if answer is None:
            rows.append((message_id, "", words_of(error) if error else ""))
            continue
        lives = [life for each in answer.lives for life in each.groups
                 if life.group == job.plan.group]  # fmt: skip
        rows.append((message_id, _state(lives[0]) if lives else "LIFE_UNKNOWN", ""))
    return rows


def _state(life: message_pb2.GroupLife) -> str:
    """Name what a message is for a group; a letter that was redriven and left it is done."""
    left = life.state == message_pb2.DIED and life.dead_state == dead_letter_pb2.REDRIVEN
    return "DONE" if left else message_pb2.LifeState.Name(life.state)


def _verb(text: str) -> str:
    if text not in VERBS:
        raise FormError("say redrive or drop")
    return text


def _offsets(texts: list[str]) -> list[int]:
    """Read chosen letters. Raises FormError."""
    if len(texts) > CHOSEN_MAX:
        raise FormError(f"choose at most {CHOSEN_MAX:,} letters")
    return sorted({whole_number(text, "a letter") for text in texts})


def _plan(
    group: str, verb: str, asked: Asked, chosen: list[int], *,
    to_topic: str = "", rate: int = 0, count_max: int = 0,
) -> Plan:  # fmt: skip
    return Plan(
        group=group,
        verb=verb,
        filter=offsets_filter(chosen) if chosen else asked.filter(),
        text=asked.text,
        to_topic=to_topic,
        rate=rate,
        count_max=count_max,
    )
