"""Lite topics: the many small queues inside one topic, and how far each consumer group is on them.

A topic of type LITE, the parent, has one consume queue. Which of its offsets belong to which lite
topic is kept here, eight bytes for a message; a lite topic has no file and no entry of a catalogue.
It comes with its first message and goes when nothing of it is retained any more, or when nothing
was sent to it for too long. Lite topics are known by the hash of their name, the order key under
which a group's messages of it block each other (`fifo.py`).

All of it is derived from records, but for `LiteReader.ready`: lite topics that may have something
for the group. What it names may be blocked or have nothing; what it does not name has nothing.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator

from latermq_broker.delivery.order.fifo import RisingOffsets


class LiteTopic(RisingOffsets):
    """The queue offsets, in the parent's queue, of what is retained; never none."""

    __slots__ = ("name", "written_ms")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.written_ms = 0

    @property
    def last(self) -> int:
        assert len(self)
        return self._offsets[-1]

    def since(self, offset: int) -> Iterator[int]:
        """Return the offsets from `offset` on."""
        for index in range(self._index(offset), len(self._offsets)):
            yield self._offsets[index]

    def count_since(self, offset: int) -> int:
        return len(self._offsets) - self._index(offset)

    def before(self, offset: int, count: int) -> int:
        """Find the offset `count` messages before the first from `offset` on, or the first one."""
        index = max(self._start, self._index(offset) - count)
        return self._offsets[index] if index < len(self._offsets) else offset

    def _index(self, offset: int) -> int:
        return bisect_left(self._offsets, offset, self._start)


class LiteReader:
    """One group's progress on the lite topics of one parent."""

    __slots__ = ("_parent", "cursors", "floor", "ready")

    def __init__(self, parent: "LiteParent") -> None:
        self._parent = parent
        self.cursors: dict[int, int] = {}  # key → next offset; absent: `floor`
        self.floor = 0
        self.ready: dict[int, None] = dict.fromkeys(parent.topics)  # live, in order of turns

    @property
    def has_read(self) -> bool:
        return bool(self.floor or self.cursors)

    def next(self, key: int) -> int:
        """Return the offset a lite topic goes on from, in the parent's queue."""
        return self.cursors.get(key, self.floor)

    def unread(self, key: int) -> int:
        """Count the messages of a lite topic that the group was not given yet."""
        topic = self._parent.topics.get(key)
        return topic.count_since(self.next(key)) if topic is not None else 0

    def ahead(self, key: int, offset: int) -> int:
        """Count what the group has to be given of a lite topic before `offset`; below 0: none, it
        was given that one, or nothing is retained."""
        if offset < self.next(key) or key not in self._parent.topics:
            return -1
        return self.unread(key) - self._parent.topics[key].count_since(offset)

    def unread_count(self) -> int:
        return sum(topic.count_since(self.next(key)) for key, topic in self._parent.topics.items())

    def unread_below(self, offset: int) -> int:
        """Count the messages below an offset of the parent's queue that it was not given yet."""
        count = 0
        for key, topic in self._parent.topics.items():
            if (first := self.next(key)) < offset:
                count += topic.count_since(first) - topic.count_since(offset)
        return count

    def first_unread(self) -> int:
        """Find the oldest offset it was not given yet; the queue's end when there is none."""
        firsts = (next(t.since(self.next(key)), -1) for key, t in self._parent.topics.items())
        return min((first for first in firsts if first >= 0), default=self._parent.end)

    def may_go(self, key: int, *, retries: bool = False) -> None:
        """Let a topic go if unread, or with `retries` to receive again, whatever is retained."""
        if retries or self.unread(key):
            self.ready.setdefault(key)

    def candidates(self, keys: Collection[int], turn: int) -> list[int]:
        """List those of `keys` that may have something; whoever had a turn comes last."""
        if len(self.ready) <= len(keys):
            return [key for key in self.ready if key in keys]
        candidates = [key for key in keys if key in self.ready]
        start = turn % len(candidates) if candidates else 0
        return candidates[start:] + candidates[:start]

    def waits(self, keys: Collection[int]) -> bool:
        """Tell whether any of `keys` may have something."""
        fewer, more = sorted((self.ready, keys), key=len)
        return any(key in more for key in fewer)

    def skip(self, offset: int) -> None:
        """Pass over what was not given below the offset, in each lite topic."""
        self.floor = max(self.floor, offset)
        self.cursors = {
            key: next_offset
            for key, cursor in self.cursors.items()
            if (next_offset := max(cursor, offset)) != self.floor
        }

    def forget(self, key: int) -> None:
        """Forget a topic of which nothing is retained. With retries, it `may_go` again."""
        self.cursors.pop(key, None)
        self.ready.pop(key, None)


class LiteParent:
    """The lite topics of one topic of type LITE, and who reads them."""

    def __init__(self) -> None:
        self.topics: dict[int, LiteTopic] = {}  # by key
        self.readers: dict[int, LiteReader] = {}  # by group id
        self.end = 0  # behind the newest message

    def enter(self, key: int, name: str, offset: int, now_ms: int) -> None:
        """Enter a message that was sent."""
        self.end = offset + 1
        topic = self.topics.get(key)
        if topic is None:
            topic = self.topics[key] = LiteTopic(name)
        elif offset <= topic.last:
            return  # told again behind a range of the log that was given up
        topic.add(offset)
        topic.written_ms = now_ms
        for reader in self.readers.values():
            reader.ready.setdefault(key)

    def reader(self, group_id: int) -> LiteReader:
        reader = self.readers.get(group_id)
        if reader is None:
            reader = self.readers[group_id] = LiteReader(self)
        return reader

    def trim(self, first: int) -> None:
        """Drop what lies below `first` in the parent's queue: it has expired."""
        for key in [key for key, topic in self.topics.items() if topic.first < first]:
            self._drop(key, first)

    def expire(self, key: int, end: int) -> None:
        """Drop what is below `end`: nothing was sent for too long; nobody is given it any more."""
        if key in self.topics:
            self._drop(key, end)

    def idle(self, before_ms: int, count: int) -> list[tuple[int, int]]:
        """List (key, its end) of up to `count` topics nothing was sent to since `before_ms`."""
        idle: list[tuple[int, int]] = []
        for key, topic in self.topics.items():
            if topic.written_ms < before_ms:
                idle.append((key, topic.last + 1))
                if len(idle) == count:
                    break
        return idle

    def facts(self) -> dict[str, object]:
        """Return what recovery must bring back, for comparisons."""
        return {
            "topics": {k: (t.name, t.written_ms, list(t)) for k, t in self.topics.items()},
            "readers": {
                group: (reader.floor, dict(sorted(reader.cursors.items())))
                for group, reader in sorted(self.readers.items())
                if reader.floor or reader.cursors
            },
        }

    def _drop(self, key: int, end: int) -> None:
        topic = self.topics[key]
        assert len(topic)
        topic.drop_upto(end)
        if not len(topic):
            del self.topics[key]
            for reader in self.readers.values():
                reader.forget(key)
