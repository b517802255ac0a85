"""An engine with several topics in one log, beside a list of their messages: `test_ages_model`."""

from dataclasses import dataclass, field
from typing import Final

from hypothesis.stateful import RuleBasedStateMachine, invariant

from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.config.config import CatalogConfig, Config, DeliveryConfig
from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    Delivered,
    OnDead,
    PendingFilter,
    PendingKind,
    ReceiveRequest,
    TopicType,
)
from latermq_broker.store.store import Store
from support.engine_bench import DIRECTORY
from support.engine_rig import do_due, short_store
from support.memory_files import MemoryFiles
from support.recount import check_uses
from support.small_bounds import SHORT_SCANS, SMALLEST, bounded

TYPES: Final = {
    "plain": TopicType.MIXED,
    "audit": TopicType.MIXED,
    "fifo": TopicType.FIFO,
    "urgent": TopicType.PRIORITY,
    "chat": TopicType.LITE,
}
READERS: Final = {  # group → the topics it reads
    "reader": ("plain", "audit", "urgent"),
    "other": ("plain", "audit"),
    "ordered": ("fifo",),
    "agents": ("chat",),
}
AGES_MS: Final = (UNSET, UNSET, 0, 2_000, 5_000, 20_000, 100_000)
DEFAULTS_MS: Final = (0, 6_000, 6_000, 6_000, 20_000)
UNREAD_TIMES: Final = (1, 1, 0, 3)
LONGER_MS: Final = (UNSET, 0, 0, 100_000)
SIZES: Final = (0, 0, 0, 0, 0, 64 << 10)  # of the log, beyond which the oldest goes
SOON_MS: Final = 15_000  # what has an age of its own goes within that, if the broker runs
LINE: Final = "line"  # the lite topic

Place = tuple[str, int, int]  # topic, queue id, offset


@dataclass
class Kept:
    name: str
    key: str  # of its message group
    entered_ms: int
    given: set[str] = field(default_factory=set)  # to these groups


def config(retention_ms: int, unread_ms: int, bytes_max: int) -> Config:
    store = short_store(
        retention_ms=retention_ms, unread_retention_ms=unread_ms, retention_bytes=bytes_max
    )
    return Config(
        store=bounded(store, SMALLEST),
        delivery=DeliveryConfig(bounds=SHORT_SCANS),
        catalog=CatalogConfig(default_queue_count=2),
    )


class AgesBench(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.now_ms = 1_700_000_000_000
        self.config = config(0, 0, 0)
        self.moved_max = 1_000
        self.own = {name: TopicTimes(UNSET, UNSET) for name in TYPES}
        self.kept: dict[Place, Kept] = {}
        self.firsts: dict[tuple[str, int], int] = {}
        self.nexts: dict[tuple[str, int], int] = {}
        self.holding: dict[str, list[Delivered]] = {group: [] for group in READERS}
        self.sent: dict[str, tuple[str, str]] = {}  # name → topic, message group
        self.was_low = False  # the disk, since the pass began
        self.early = 0  # counted by the engine, up to the last look
        self.low_percent = 50
        self.engine = self.start(0)
        for name, type in TYPES.items():
            self.engine.topics.create(name, type, 0 if name == "chat" else 2, self.now_ms)
        for group in READERS:
            if group == "agents":
                self.engine.lites.bind(group, "chat", self.now_ms)
                continue
            self.engine.groups.create(
                group,
                fifo=group == "ordered",
                max_attempts=0,
                backoff=None,
                on_dead=OnDead.SKIP,
                now_ms=self.now_ms,
            )
        for group, topics in READERS.items():
            for topic in topics:
                self.read(group, topic, 1)
        self.engine.write()

    def start(self, back_ms: int) -> Engine:
        began_ms = self.now_ms - back_ms
        store = Store.open(DIRECTORY, self.config.store, self.files, began_ms)
        engine = Engine.open(store, self.config, began_ms)
        engine.retention.step_cost = 3_000  # a pass takes many ticks
        engine.retention.roll_forward.moved_entries_max = self.moved_max
        self.early, self.was_low = 0, False
        return engine

    def teardown(self) -> None:
        self.engine.abandon()

    # --- what is there -------------------------------------------------------------------------

    def ages(self, topic: str) -> tuple[int, int]:
        """How long the topic keeps what is read, and what is not; 0: for ever."""
        read_ms, unread_ms, _ = self.own[topic]
        store = self.config.store
        read_ms = store.retention_ms if read_ms == UNSET else read_ms
        unread_ms = store.unread_retention_ms if unread_ms == UNSET else unread_ms
        assert read_ms is not None
        assert unread_ms is not None
        return read_ms, max(unread_ms, read_ms) if unread_ms else 0

    def unread(self, place: Place) -> str | None:
        """Name a group that reads the topic and was not given the message."""
        groups = [group for group, topics in READERS.items() if place[0] in topics]
        return next((one for one in groups if one not in self.kept[place].given), None)

    def read(self, group: str, topic: str, count: int) -> list[Delivered]:
        keys = frozenset({lite_key(LINE)} if topic == "chat" else ())
        request = ReceiveRequest(group, topic, "client", count, 3_600_000, lite_keys=keys)
        got = self.engine.receive(request, self.now_ms)
        self.engine.write()
        for one in got:
            place = topic, one.queue_id, one.queue_offset
            if place in self.kept:
                assert one.sys.decode() == self.kept[place].name
                self.kept[place].given.add(group)
        return got

    def finish(self, group: str, got: list[Delivered]) -> None:
        if got:
            self.engine.ack(group, [one.handle for one in got], self.now_ms)
            self.engine.write()

    def tick(self) -> None:
        if self.engine.retention._pass is None:
            self.was_low = False
        self.was_low |= self.engine.store.disk.low
        do_due(self.engine, self.now_ms)
        self.look()

    @invariant()
    def look(self) -> None:
        self.engine.write()
        self.engine.take_ready()
        early = 0
        for name in TYPES:
            topic = self.engine.catalog.topic(name)
            if topic is None:
                continue
            for ends in self.engine.topics.ends(topic):
                place = name, ends.queue_id
                first, end = ends.earliest_offset, ends.next_offset
                rows = self.engine.queues.read(
                    name, "", ends.queue_id, first, end, rows_max=100_000, bytes_max=1 << 30
                )
                assert [row.queue_offset for row in rows] == [*range(first, end)]
                for row in rows:
                    self.note(name, ends.queue_id, row.queue_offset, row.sys, row.rest)
                for offset in range(self.firsts.get(place, 0), first):
                    early += self.went((*place, offset))
                self.firsts[place] = first
        counted = self.engine.retention.trims.entries_expired_early
        assert counted - self.early >= early, "something went early, and that was not counted"
        if not early and not self.config.store.retention_bytes and not self.was_low:
            assert counted == self.early, "nothing went early"
        self.early = counted
        check_uses(self.engine)

    def note(self, topic: str, queue_id: int, offset: int, sys: bytes, rest: bytes) -> None:
        name = sys.decode()
        place = topic, queue_id, offset
        if place not in self.kept:
            self.kept[place] = Kept(name, self.sent[name][1], self.now_ms)
        assert self.kept[place].name == name
        assert rest == sys * (900 // len(sys))

    def went(self, place: Place) -> bool:
        """Whether a message that is gone went before its age, as it may for want of room."""
        if place not in self.kept:
            return False  # of a log over its size, before anybody looked
        message = self.kept[place]
        old_ms = self.now_ms - message.entered_ms
        read_ms, unread_ms = self.ages(place[0])
        group = self.unread(place)
        young = not read_ms or old_ms < read_ms
        early = young or (group is not None and unread_ms > 0 and old_ms < unread_ms)
        if not self.config.store.retention_bytes:
            assert not early or self.was_low, f"it went early, of {place[0]}"
            assert group is None or not young, "it went early, and unread"
            if group is not None and not unread_ms:
                assert self.was_low, "it went unread, and the disk has room"
        if group == "ordered" and any(self.key(one) == message.key for one in self.holding[group]):
            assert message.name in self.retries(group), "it went, and was withheld"
        return early

    def key(self, one: Delivered) -> str:
        return self.sent[one.sys.decode()][1]

    def retries(self, group: str) -> set[str]:
        backoff = PendingFilter(kind=PendingKind.BACKOFF, group=group)
        items, _ = self.engine.pending.page(backoff, 10_000)
        return {item.sys.decode() for item in items}
