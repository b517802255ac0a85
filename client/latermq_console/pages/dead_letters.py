"""Dead letters: which groups have them, what they died of, one letter's life."""

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.drawing import bodies, charts, story
from latermq_console.drawing.links import query, segment
from latermq_console.drawing.words import counted
from latermq_console.pages.letter_filter import Asked, asked_of
from latermq_console.reading.jobs import words_of
from latermq_console.reading.letters import Kind, Tally, page_of, shown_topics
from latermq_console.serving.console import View, whole_number
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_proto.latermq.v1 import group_pb2
from latermq_text.letters import failure_of

TALLY_S: Final = 0.6  # a page waits so long for the tally; then it says that it is coming
FIRST_LOOK_S: Final = 1.5
KINDS_SHOWN: Final = 50
BUCKETS: Final = 24
GROUPS_SHOWN: Final = 200
GROUPS_ASKED_MAX: Final = 1_000  # of each shard
GROUPS_S: Final = 5.0


class KindRow(NamedTuple):
    """A kind of failure with its line over the time that its group's letters span."""

    kind: Kind
    line: Any
    topics: str
    asked: Asked


class GroupRow(NamedTuple):
    """A group's letters in one shard, and what of them came lately."""

    place: str  # in an address: billing, or billing@1 in a cluster
    name: str
    shard: int
    dead: int
    lately: int
    line: Any


async def groups(view: View) -> Response:
    """Show the groups that have dead letters, the most first."""
    await view.watch.ready(FIRST_LOOK_S)
    error, silent, several = view.watch.groups_error, list[str](), False
    rows = [
        _row(view, state.name, state.name, 0, state.dead)
        for state in view.watch.groups.values() if state.dead
    ]  # fmt: skip
    if len(await view.shards.desks()) > 1 and not error:
        rows, silent, several = *await _of_shards(view), True
    rows.sort(key=lambda row: (-row.lately, -row.dead, row.name))
    return view.render(
        "dead_groups.html",
        rows=rows[:GROUPS_SHOWN],
        more=max(0, len(rows) - GROUPS_SHOWN),
        error=error,
        silent=silent,
        several=several,
        group="",
    )


async def _of_shards(view: View, name: str = "") -> tuple[list[GroupRow], list[str]]:
    """Return the groups that have letters in any shard, or one of them; and who is silent."""
    groups = view.desk.admin.groups
    if name:
        request = group_pb2.GetGroupRequest(name=name)
        parts = await view.shards.each(groups.GetGroup, lambda _: request)
        states, silent = [(shard, answer.group) for shard, answer in parts.answers], parts.silent
    else:
        listing = group_pb2.ListGroupsRequest(page_size=GROUPS_ASKED_MAX)
        page = await view.shards.listed(
            groups.ListGroups, listing, "groups", lambda each: each.name, age_s=GROUPS_S
        )
        states, silent = page.rows, page.silent
    rows = [
        _row(view, f"{group.name}@{shard}", group.name, shard, group.dead_letter_count)
        for shard, group in states if group.dead_letter_count
    ]  # fmt: skip
    return rows, silent


async def group(view: View) -> Response:
    """Show a group's letters: by what they died of, and one by one."""
    place, asked = view.path("group"), asked_of(view)
    if view.asked("offset").isdecimal():  # a link made by hand
        return view.go(f"{view.request.url.path}/letters/{view.asked('offset')}")
    name, desk = await view.whose(place)
    if name == place and len(await view.shards.desks()) > 1:
        rows, silent = await _of_shards(view, name)
        if len(rows) != 1 or silent or view.live:  # nothing is led away while it looks
            return view.render(
                "dead_groups.html", rows=rows, more=0, error="", silent=silent, several=True,
                group=name,
            )  # fmt: skip
        return view.go(f"/dead/{segment(rows[0].place)}{query(asked.query())}")
    tally, tally_error = None, ""
    try:
        tally = await view.shelves.of(desk, name).tally(TALLY_S)
    except LaterMQError as error:
        tally_error = words_of(error)
    page = await page_of(desk, name, asked.filter(), asked.text, view.asked("after"))
    return view.render(
        "dead_group.html",
        place=place,
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
    place, offset = view.path("group"), whole_number(view.path("offset"), "a letter")
    name, desk = await view.whose(place)
    request = dead_pb2.GetDeadLetterRequest(group=name, queue_offset=offset)
    async with view.console.bodies:
        answer = await desk.look(desk.admin.dead_letters.GetDeadLetter, request)
    dead_letter = answer.letter
    events = story.events(dead_letter)
    tally = None
    if dead_letter.signature:
        try:
            tally = await view.shelves.of(desk, name).tally(0.2)
        except LaterMQError:  # the letter is what was asked for; how many are alike is extra
            tally = None
    alike = (
        next((k.count for k in tally.kinds if k.signature == dead_letter.signature), 0)
        if tally
        else 0
    )
    return view.render(
        "dead_letter.html",
        place=place,
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


def _row(view: View, place: str, name: str, shard: int, dead: int) -> GroupRow:
    state = view.watch.groups.get(name)
    deaths = state.deaths.get(shard) if state is not None else None
    values = [float(count) for _, count in deaths.counts] if deaths is not None else []
    line = charts.spark(values, f"{counted(dead, 'dead letter')} now", "bad")
    return GroupRow(place, name, shard, dead, deaths.lately if deaths is not None else 0, line)


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
