"""Dead letters: which groups have them, what they died of, one letter's life."""

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.drawing import bodies, charts, story
from latermq_console.drawing.words import counted
from latermq_console.pages.letter_filter import Asked, asked_of
from latermq_console.reading.jobs import words_of
from latermq_console.reading.letters import Kind, Tally, page_of, shown_topics
from latermq_console.reading.watch import GroupState
from latermq_console.serving.console import View
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_text.letters import failure_of

TALLY_S: Final = 0.6  # a page waits so long for the tally; then it says that it is coming
FIRST_LOOK_S: Final = 1.5
KINDS_SHOWN: Final = 50
BUCKETS: Final = 24
GROUPS_SHOWN: Final = 200


class KindRow(NamedTuple):
    """A kind of failure with its line over the time that its group's letters span."""

    kind: Kind
    line: Any
    topics: str
    asked: Asked


async def groups(view: View) -> Response:
    """Show the groups that have dead letters, the most first."""
    watch = view.watch
    await watch.ready(FIRST_LOOK_S)
    states = [state for state in watch.groups.values() if state.dead]
    states.sort(key=lambda state: (-state.died_lately, -state.dead, state.name))
    return view.render(
        "dead_groups.html",
        rows=[(state, _line(state)) for state in states[:GROUPS_SHOWN]],
        more=max(0, len(states) - GROUPS_SHOWN),
        total=sum(state.dead for state in states),
        error=watch.groups_error,
    )


async def group(view: View) -> Response:
    """Show a group's letters: by what they died of, and one by one."""
    name, asked = view.path("group"), asked_of(view)
    if view.asked("offset").isdecimal():  # a link made by hand
        return view.go(f"{view.request.url.path}/letters/{view.asked('offset')}")
    tally, tally_error = None, ""
    try:
        tally = await view.shelves.of(name).tally(TALLY_S)
    except LaterMQError as error:
        tally_error = words_of(error)
    page = await page_of(view.desk, name, asked.filter(), asked.text, view.asked("after"))
    return view.render(
        "dead_group.html",
        group=name,
        asked=asked,
        tally=tally,
        tally_error=tally_error,
        kinds=_kind_rows(tally, asked) if tally is not None else [],
        chosen=_chosen(tally, asked),
        page=page,
        after=view.asked("after"),
        failure_of=failure_of,
        states=dead_pb2,
    )


async def letter(view: View) -> Response:
    """Tell one letter's life."""
    name, offset = view.path("group"), int(view.path("offset"))
    desk = view.desk
    request = dead_pb2.GetDeadLetterRequest(group=name, queue_offset=offset)
    answer = await desk.look(desk.admin.dead_letters.GetDeadLetter, request)
    dead_letter = answer.letter
    events = story.events(dead_letter)
    tally = None
    if dead_letter.signature:
        try:
            tally = await view.shelves.of(name).tally(0.2)
        except LaterMQError:  # the letter is what was asked for; how many are alike is extra
            tally = None
    alike = (
        next((k.count for k in tally.kinds if k.signature == dead_letter.signature), 0)
        if tally
        else 0
    )
    return view.render(
        "dead_letter.html",
        group=name,
        letter=dead_letter,
        events=events,
        opened=max((number for number, each in enumerate(events) if each.stack), default=-1),
        spans=story.line(dead_letter),
        why=story.why(dead_letter),
        body=bodies.body_of(dead_letter.body, dead_letter.body_encoding),
        properties=bodies.properties_of(dead_letter.properties),
        alike=alike,
        more_alike=tally is not None and not tally.whole,
        is_dead=dead_letter.state == dead_pb2.DEAD,
        state=dead_pb2.DeadLetterState.Name(dead_letter.state).lower(),
        words=failure_of(dead_letter),
    )


def _line(state: GroupState) -> Any:
    values = [float(count) for _, count in state.deads]
    return charts.spark(values, f"{counted(state.dead, 'dead letter')} now", "bad")


def _kind_rows(tally: Tally, asked: Asked) -> list[KindRow]:
    times = [ms for kind in tally.kinds for ms in kind.times_ms]
    begin_ms = min(times, default=0)
    end_ms = max(clock.now_ms(), max(times, default=0)) + 1
    rows = []
    for kind in tally.kinds[:KINDS_SHOWN]:
        values = charts.buckets(kind.times_ms, begin_ms, end_ms, BUCKETS)
        line = charts.spark_bars(values, f"{counted(kind.count, 'letter')} over time", "bad")
        chosen = asked.with_signature(kind.signature)
        rows.append(KindRow(kind, line, shown_topics(kind.topics), chosen))
    return rows


def _chosen(tally: Tally | None, asked: Asked) -> Kind | None:
    """Return the kind that is asked for, if it is known."""
    kinds = tally.kinds if tally is not None else []
    return next((kind for kind in kinds if asked.signature == kind.signature != ""), None)
