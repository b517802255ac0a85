"""Dead letters as pages show them: by page, and counted by what they died of.

A broker lists letters and counts them; it does not group them. So the newest TALLIED_MAX of a group
are read once and kept here without bodies, and afterwards only what is new. That something else
changed, a redrive elsewhere, shows in the group's count; then all is read anew, not too often.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from latermq_console import clock
from latermq_console.reading.desk import Desk
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_proto.latermq.v1 import group_pb2

PAGE: Final = 50
TALLIED_MAX: Final = 2_000
TALLY_PAGE: Final = 250
SEARCHED_MAX: Final = 1_000  # letters looked through for a text, for one page
TRIES_MAX: Final = 6  # looks at the broker for one page: each ends after a moment, found or not
RELOAD_S_PER_LETTER: Final = 0.0075  # between two readings of all: 15 s of TALLIED_MAX
LISTED_S: Final = 20.0  # a page of letters is that old at most, unless the count says otherwise
SHELVES_MAX: Final = 64  # of all sessions together
TOPICS_SHOWN: Final = 4


class Row(NamedTuple):
    """What is kept of a letter."""

    offset: int
    signature: str
    failure_class: str
    failure_text: str
    topic: str
    dead_at_ms: int


@dataclass(slots=True)
class Kind:
    """Letters that died of the same."""

    signature: str
    failure_class: str
    failure_text: str
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    topics: set[str] = field(default_factory=set)
    times_ms: list[int] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.failure_class or ("no failure told" if not self.failure_text else "failed")


class Tally(NamedTuple):
    """The kinds, the most frequent first, of `tallied` letters out of `total`."""

    kinds: list[Kind]
    tallied: int
    total: int
    loading: bool

    @property
    def whole(self) -> bool:
        return self.tallied >= self.total

    @property
    def classes(self) -> list[str]:
        return sorted({kind.failure_class for kind in self.kinds if kind.failure_class})

    @property
    def topics(self) -> list[str]:
        return sorted(set().union(*(kind.topics for kind in self.kinds)))


class Page(NamedTuple):
    """Letters of one page; `token` leads to the next, `searched` were looked through for a text."""

    letters: list[dead_pb2.DeadLetter]
    token: str
    searched: int


class Shelf:
    """The newest dead letters of one group, for one user."""

    def __init__(self, desk: Desk, group: str) -> None:
        self._desk = desk
        self._group = group
        self._rows: OrderedDict[int, Row] = OrderedDict()  # the newest first
        self._total = -1
        self._loaded_s = 0.0
        self._work: asyncio.Task[None] | None = None

    async def tally(self, wait_s: float) -> Tally:
        """Return the kinds; what takes longer than `wait_s` goes on, and is there next time.

        Raises:
            LaterMQError: of reading the letters.
        """
        if self._work is None:
            self._work = asyncio.ensure_future(self._refresh())
        work = self._work
        await asyncio.wait((work,), timeout=wait_s)
        if work.done() and self._work is work:
            self._work = None
        whole = work.done() and not work.cancelled()  # cancelled: emptied, or the session ended
        if whole:
            work.result()
        return Tally(_kinds(self._rows.values()), len(self._rows), max(0, self._total), not whole)

    def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def empty(self) -> None:
        """Forget all letters; they are read again when somebody asks."""
        self.stop()
        self._work = None
        self._rows = OrderedDict()
        self._total, self._loaded_s = -1, 0.0

    async def _refresh(self) -> None:
        request = group_pb2.GetGroupRequest(name=self._group)
        group = (await self._desk.look(self._desk.admin.groups.GetGroup, request)).group
        total = group.dead_letter_count
        if total == self._total:
            return
        newest = next(iter(self._rows), -1)
        first = self._total < 0
        fresh = await self._newer(newest, total) if total and not first else []
        if first or (len(fresh) != total - self._total):
            pause_s = len(self._rows) * RELOAD_S_PER_LETTER
            if not first and clock.monotonic_s() - self._loaded_s < pause_s:
                return
            await self._reload(total)
        else:
            rows = OrderedDict((row.offset, row) for row in fresh)
            rows.update(self._rows)
            while len(rows) > TALLIED_MAX:
                rows.popitem()
            self._rows = rows
        self._total = total
        self._desk.forget()

    async def _newer(self, newest: int, total: int) -> list[Row]:
        fresh: list[Row] = []
        token = ""
        while len(fresh) < TALLIED_MAX:
            answer = await self._list(PAGE, token)
            for letter in answer.letters:
                if letter.queue_offset <= newest:
                    return fresh
                fresh.append(_row(letter))
            token = answer.next_page_token
            if not token or len(fresh) >= total:
                break
        return fresh

    async def _reload(self, total: int) -> None:
        self._loaded_s = clock.monotonic_s()
        rows: OrderedDict[int, Row] = OrderedDict()
        token = ""
        wanted = min(total, TALLIED_MAX)
        while len(rows) < wanted:
            answer = await self._list(min(TALLY_PAGE, wanted - len(rows)), token)
            rows.update((letter.queue_offset, _row(letter)) for letter in answer.letters)
            token = answer.next_page_token
            if not token:
                break
        self._rows = rows

    async def _list(self, size: int, token: str) -> dead_pb2.ListDeadLettersResponse:
        request = dead_pb2.ListDeadLettersRequest(
            group=self._group, page_size=size, page_token=token, newest_first=True
        )
        admin = self._desk.admin
        answer: dead_pb2.ListDeadLettersResponse = await admin.call(
            admin.dead_letters.ListDeadLetters, request
        )
        return answer


class ShelfRoom:
    """Bounds the shelves of all sessions together: the longest unused are emptied."""

    def __init__(self) -> None:
        self._used: WeakKeyDictionary[Shelf, None] = WeakKeyDictionary()  # the latest last

    def use(self, shelf: Shelf) -> None:
        self._used.pop(shelf, None)
        self._used[shelf] = None
        while len(self._used) > SHELVES_MAX:
            oldest = next(iter(self._used))
            del self._used[oldest]
            oldest.empty()


class Shelves:
    """The shelves of one session."""

    def __init__(self, room: ShelfRoom | None = None) -> None:
        self._kept: OrderedDict[tuple[Desk, str], Shelf] = OrderedDict()
        self._room = room if room is not None else ShelfRoom()

    def of(self, desk: Desk, group: str) -> Shelf:
        """Return the shelf of a group in the shard that `desk` leads to."""
        key = (desk, group)
        if key not in self._kept:
            self._kept[key] = Shelf(desk, group)
            while len(self._kept) > SHELVES_MAX:
                self._kept.popitem(last=False)[1].stop()
        self._kept.move_to_end(key)
        self._room.use(self._kept[key])
        return self._kept[key]

    def stop(self) -> None:
        for shelf in self._kept.values():
            shelf.stop()


async def page_of(
    desk: Desk, group: str, filter: dead_pb2.DeadLetterFilter, text: str, token: str
) -> Page:
    """Return a page of letters, the newest first. Raises LaterMQError.

    What the broker does not filter by, a text, is looked for here in at most SEARCHED_MAX letters;
    `token` goes on from there.
    """
    listing = desk.admin.dead_letters.ListDeadLetters
    searched, tries, letters = 0, 0, list[dead_pb2.DeadLetter]()
    wanted = text.casefold()
    while True:
        request = dead_pb2.ListDeadLettersRequest(
            group=group, filter=filter, page_size=PAGE, page_token=token, newest_first=True
        )
        answer = await desk.look(listing, request, age_s=LISTED_S)
        token = answer.next_page_token
        if not wanted and (answer.letters or not token or tries >= TRIES_MAX):
            return Page(list(answer.letters), token, 0)
        tries += 1
        searched += len(answer.letters)
        letters += [letter for letter in answer.letters if contains(letter, wanted)]
        enough = len(letters) >= PAGE or searched >= SEARCHED_MAX or tries >= SEARCHED_MAX // PAGE
        if not token or enough:
            return Page(letters, token, searched)


def contains(letter: dead_pb2.DeadLetter, wanted: str) -> bool:
    """Tell whether a text, in lower case, is in what a person may remember of a letter."""
    texts: Iterable[str] = (
        letter.failure_class, letter.failure_text, letter.message_id, letter.tag,
        letter.message_group, *letter.keys,
    )  # fmt: skip
    return any(wanted in text.casefold() for text in texts)


def _row(letter: Any) -> Row:
    return Row(
        letter.queue_offset,
        letter.signature,
        letter.failure_class,
        letter.failure_text[:300],
        letter.origin_topic,
        letter.dead_at_ms,
    )


def _kinds(rows: Iterable[Row]) -> list[Kind]:
    kinds: dict[str, Kind] = {}
    for row in rows:
        kind = kinds.get(row.signature)
        if kind is None:  # the newest one's text stands for all
            kind = Kind(row.signature, row.failure_class, " ".join(row.failure_text.split()))
            kind.first_ms = kind.last_ms = row.dead_at_ms
            kinds[row.signature] = kind
        kind.count += 1
        kind.first_ms = min(kind.first_ms, row.dead_at_ms)
        kind.last_ms = max(kind.last_ms, row.dead_at_ms)
        kind.topics.add(row.topic)
        kind.times_ms.append(row.dead_at_ms)
    return sorted(kinds.values(), key=_by_frequency)


def _by_frequency(kind: Kind) -> tuple[int, int, str]:
    return -kind.count, -kind.last_ms, kind.signature


def shown_topics(topics: Sequence[str] | set[str]) -> str:
    """Name a few topics, and how many more there are."""
    names = sorted(topics)
    more = f" and {len(names) - TOPICS_SHOWN} more" if len(names) > TOPICS_SHOWN else ""
    return ", ".join(name or "sent straight here" for name in names[:TOPICS_SHOWN]) + more
