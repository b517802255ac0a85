"""What waits and until when: by minute, by topic and group; due now, later, or never."""

from typing import Final

from starlette.responses import Response

from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.drawing import charts, words
from latermq_console.pages.sure import is_sure
from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import words_of
from latermq_console.reading.shards import Parts
from latermq_console.serving.console import FormError, View
from latermq_proto.latermq.v1 import pending_pb2
from latermq_text.durations import parse_duration_ms

PAGE: Final = 50
LOOKED_MAX: Final = 1_000  # messages that the histogram looks at: those that come due first
LOOKED_S: Final = 10.0  # so old may be what is looked at, or counted
COUNTED_S: Final = 60.0  # in many groups: each counts for the broker
MINUTES: Final = 60
MINUTE_MS: Final = 60_000
CHOSEN_MAX: Final = 1_000
COUNTS_SHOWN: Final = 40
KINDS: Final = {
    "delayed": pending_pb2.DELAYED,
    "backoff": pending_pb2.BACKOFF,
    "in-flight": pending_pb2.IN_FLIGHT,
    "half": pending_pb2.HALF,
}
KIND_WORDS: Final = {
    pending_pb2.DELAYED: "delayed",
    pending_pb2.BACKOFF: "in backoff",
    pending_pb2.IN_FLIGHT: "in flight",
    pending_pb2.HALF: "open transaction",
}
DONE_WORDS: Final = {
    "expedite": "due now",
    "postpone": "postponed",
    "cancel": "cancelled",
    "commit": "committed",
}


async def pending(view: View) -> Response:
    """Show what waits."""
    return await _show(view, view.asked("kind"), "pending.html")


async def transactions(view: View) -> Response:
    """Show the transactions that nobody has ended yet."""
    return await _show(view, "half", "transactions.html")


async def _show(view: View, kind: str, template: str) -> Response:
    desk = view.desk
    if kind and kind not in KINDS:
        raise FormError(f"the kind is one of {', '.join(KINDS)}")
    filter = pending_pb2.PendingFilter(
        topic=view.asked("topic"), group=view.asked("group"), kind=KINDS.get(kind, 0)
    )
    listing = pending_pb2.ListPendingRequest(
        filter=filter, page_size=PAGE, page_token=view.asked("after")
    )
    page = await view.shards.listed(
        desk.admin.pending.ListPending, listing, "messages", lambda each: each.due_at_ms
    )
    counting = pending_pb2.CountPendingRequest(filter=filter)
    counts, counts_error = [], ""
    try:
        parts = await view.shards.each(
            desk.admin.pending.CountPending,
            lambda _: counting,
            age_s=COUNTED_S if view.watch.many else LOOKED_S,
        )
        counts = _added(parts)
    except LaterMQError as error:
        counts_error = words_of(error)
    bars, reach = await _histogram(view, filter) if template == "pending.html" else ([], "")
    return view.render(
        template,
        kind=kind,
        topic=view.asked("topic"),
        group=view.asked("group"),
        page=page,
        after=view.asked("after"),
        counts=counts,
        counts_error=counts_error,
        shown=COUNTS_SHOWN,
        bars=bars,
        reach=reach,
        kinds=KIND_WORDS,
        names=pending_pb2,
        now_ms=clock.now_ms(),
        query_now={"kind": kind, "topic": view.asked("topic"), "group": view.asked("group")},
    )


async def _histogram(view: View, filter: pending_pb2.PendingFilter) -> tuple[list[charts.Bar], str]:
    """Count what comes due in each minute of the next hour; and say how far that is whole."""
    desk = view.desk
    now_ms = clock.now_ms()
    begin_ms = now_ms // MINUTE_MS * MINUTE_MS
    end_ms = begin_ms + MINUTES * MINUTE_MS
    until = pending_pb2.PendingFilter()
    until.CopyFrom(filter)
    until.due_before_ms = end_ms
    request = pending_pb2.ListPendingRequest(filter=until, page_size=LOOKED_MAX)
    try:
        page = await view.shards.listed(
            desk.admin.pending.ListPending, request, "messages", lambda each: each.due_at_ms,
            age_s=LOOKED_S,
        )  # fmt: skip
    except LaterMQError:  # the list below says why
        return [], ""
    if not page.rows:
        return [], ""
    due = [max(begin_ms, each.due_at_ms) for _, each in page.rows]
    counts = charts.buckets(due, begin_ms, end_ms, MINUTES)
    labels = [
        f"{words.counted(count, 'message')} in minute {minute}" if minute else
        f"{words.counted(count, 'message')} now"
        for minute, count in enumerate(counts)
    ]  # fmt: skip
    more = bool(page.token)
    reach = f"the {len(due):,} that come first" if more else words.counted(sum(counts), "message")
    return charts.bars(counts, labels, 900, 90), reach


def _added(parts: Parts) -> list[pending_pb2.PendingCount]:
    """Return what waits where, all shards together, the most first."""
    counts: dict[tuple[int, str, str], pending_pb2.PendingCount] = {}
    for _, answer in parts.answers:
        for each in answer.counts:
            key = (each.kind, each.topic, each.group)
            if key in counts:
                counts[key].count += each.count
            else:
                counts[key] = pending_pb2.PendingCount()
                counts[key].CopyFrom(each)
    return sorted(counts.values(), key=lambda each: -each.count)


async def change(view: View) -> Response:
    """Expedite, postpone, cancel or commit what was chosen; ask first before it is gone."""
    verb, ids = view.field("verb"), view.form.get("id", [])
    back = view.back("/pending")
    if verb not in DONE_WORDS:
        raise FormError("say expedite, postpone, cancel or commit")
    if not ids or len(ids) > CHOSEN_MAX:
        raise FormError("choose some messages first")
    if verb in ("cancel", "commit") and not is_sure(view):
        return view.render("pending_sure.html", verb=verb, ids=ids, back=back)
    service = view.desk.admin.pending
    method = {
        "expedite": service.ExpeditePending,
        "postpone": service.PostponePending,
        "cancel": service.CancelPending,
        "commit": service.CommitPending,
    }[verb]
    due_at_ms = 0
    if verb == "postpone":
        try:
            due_at_ms = clock.now_ms() + parse_duration_ms(view.field("by"))
        except ValueError as error:
            raise FormError(str(error)) from None
    wanted: dict[Desk, list[str]] = {}
    for handle in ids:
        own, desk = await view.whose(handle)
        wanted.setdefault(desk, []).append(own)
    failed: list[str] = []  # why, of each
    for desk, own_ids in wanted.items():
        request = pending_pb2.ChangePendingRequest(ids=own_ids, due_at_ms=due_at_ms)
        try:
            results = (await desk.call(method, request)).results
        except LaterMQError as error:
            if len(wanted) == 1:
                raise
            # What other shards did stays done.
            failed += [words_of(error)] * len(own_ids)
            continue
        failed += [each.status.message for each in results if each.status.code != 20000]
    text = f"{words.counted(len(ids) - len(failed), 'message')} {DONE_WORDS[verb]}"
    if failed:
        text += f"; {len(failed)} not: {failed[0]}"
    return view.go(back, "bad" if failed else "good", text)
