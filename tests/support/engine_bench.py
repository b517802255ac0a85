"""An engine beside its model: how it starts, how time passes, what is looked at.

`look` holds the queues against the model after every step; `recovered` is what must hold after
every start, by the names of docs/reliability.md: I1 to I12.
"""

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.config.config import (
    CatalogConfig,
    Config,
    DedupConfig,
    DeliveryConfig,
    TransactionConfig,
)
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    OnDead,
    Outgoing,
    PendingFilter,
    PendingKind,
    QueueRow,
    ReceiveRequest,
)
from latermq_broker.store.store import Store
from support.audit import locked
from support.engine_facts import facts
from support.engine_model import (
    AGE_MS,
    CHECK_MS,
    CHECKS_MAX,
    FIRST_CHECK_MS,
    HALVES_MAX,
    Model,
)
from support.engine_rig import do_due, short_store
from support.group_model import IN_HAND, RENEWED_MS_MAX, UNWANTED_MS, Group, Held, Message, Where
from support.memory_files import MemoryFiles, lose_checkpoints
from support.recount import check_uses
from support.small_bounds import SHORT_SCANS, SMALLEST, bounded

DIRECTORY: Final = Path("/data")
TOPIC: Final = "orders"
FILLER: Final = Outgoing(topic="filler", rest=bytes(1_000), sys=b"f", message_id="f")
KEYS: Final = ("", "a", "b", "c")  # message groups
LETTERS_MS: Final = 9_000  # retention of dead letters
HELD_MAX: Final = 6
DEDUP: Final = DedupConfig(window_ms=4_000, bytes_max=180)  # of 4 ids
LOST: Final = "lost"  # a dedup id of what is never written


def config(retention_ms: int, unread_ms: int | None = None) -> Config:
    return Config(
        store=bounded(
            short_store(
                retention_ms=retention_ms,
                unread_retention_ms=retention_ms if unread_ms is None else unread_ms,
                dead_letter_retention_ms=LETTERS_MS,
            ),
            SMALLEST,
        ),
        delivery=DeliveryConfig(
            max_attempts=3,
            held_messages_max=HELD_MAX,
            auto_renew_total_ms_max=RENEWED_MS_MAX,
            unwanted_retry_ms_max=UNWANTED_MS,
            bounds=SHORT_SCANS,
        ),
        transaction=TransactionConfig(
            first_check_ms=FIRST_CHECK_MS,
            check_interval_ms=CHECK_MS,
            checks_max=CHECKS_MAX,
            age_ms_max=AGE_MS,
            half_messages_max=HALVES_MAX,
        ),
        catalog=CatalogConfig(default_queue_count=2),
        dedup=DEDUP,
    )


class Over(NamedTuple):
    """A handle whose message was acknowledged or forwarded, until its lease would have ended."""

    group: str
    handle: str
    deadline_ms: int
    forwarded: bool


def body(name: str) -> bytes:
    return name.encode() * 20


def pusher(group: Group) -> str:
    """The client id of the one whose leases in that group are renewed."""
    return f"pusher of {group.name}"


class Bench(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.now_ms = 1_700_000_000_000
        self.wall_ahead_ms = 0
        self.ticked_ms = self.tick_ms = 0  # the last time but one, and the last
        self.retention_ms = 0
        self.unread_ms = 0  # as the configuration has it
        self.own_ages = TopicTimes(UNSET, UNSET)  # of the topic
        self.was_low = False  # the disk, while retention decided what may have gone since
        self.expiring = False  # retention was ever on
        self.over: list[Over] = []
        self.seen: dict[int, int] = {}  # queue id → offset up to which `look` has looked
        self.model = Model(
            (
                Group("everything"),
                Group("only-a", tags=frozenset("a")),
                Group("skip", on_dead=OnDead.SKIP),
                Group("park", on_dead=OnDead.PARK),
            )
        )
        self.engine = self.start(self.files)
        self.engine.ensure_topic(TOPIC, self.now_ms)
        for group in self.model.groups.values():
            self.engine.groups.create(
                group.name,
                fifo=group.on_dead is not None,
                max_attempts=group.max_attempts,
                backoff=None,
                on_dead=group.on_dead or OnDead.SKIP,
                now_ms=self.now_ms,
            )
            self.engine.receive(ReceiveRequest(group.name, TOPIC, "client", 1, 1), self.now_ms)
        self.engine.write()

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    def start(self, files: MemoryFiles, *, back_ms: int = 0) -> Engine:
        """A start, whose first look at the wall clock may see it set back; what is due is done."""
        settings = config(self.retention_ms, self.unread_ms)
        began_ms = self.now_ms - back_ms
        store = Store.open(DIRECTORY, settings.store, files, began_ms)
        engine = Engine.open(store, settings, began_ms)
        engine.client_gone("client", self.now_ms)  # it never comes back to renew
        self.beat(engine)
        engine.wall.ahead_ms = self.wall_ahead_ms
        engine.retention.step_cost = 0
        do_due(engine, self.now_ms)
        engine.retention.step_cost = 3_000  # a pass takes many ticks
        return engine

    def beat(self, engine: Engine) -> None:
        """Clients whose leases are renewed say that they live; the others are known to be gone."""
        for group in self.model.groups.values():
            (engine.client_seen if group.renews else engine.client_gone)(pusher(group), self.now_ms)

    @property
    def ages(self) -> tuple[int, int]:
        """How long what is read stays in the topic, and what is not; 0: for no time of its own."""
        read_ms, unread_ms, _ = self.own_ages
        read_ms = self.retention_ms if read_ms == UNSET else read_ms
        unread_ms = self.unread_ms if unread_ms == UNSET else unread_ms
        assert read_ms is not None
        assert unread_ms is not None
        return read_ms, max(unread_ms, read_ms) if unread_ms else 0

    def tick(self) -> None:
        if self.engine.retention._pass is None:
            self.was_low = False
        self.was_low |= self.engine.store.disk.low
        self.ticked_ms, self.tick_ms = self.tick_ms, self.now_ms
        self.beat(self.engine)
        self.model.time_passes(self.now_ms, self.wall_ms)
        do_due(self.engine, self.now_ms)
        self.look()

    def fill(self, count: int) -> None:
        """Others send, if the disk is not full: a segment takes some 14."""
        if not self.engine.store.disk.full:
            for _ in range(count):
                self.engine.send([FILLER], self.now_ms)
            self.engine.write()

    def wait_until_due(self, draw: st.DataObject, before_ms: int) -> None:
        """Until one of the next deadlines, or until the millisecond before: then nothing is due."""
        deadlines = sorted(self.model.deadlines(self.wall_ahead_ms)) or [self.now_ms + 500]
        at_ms = draw.draw(st.sampled_from(deadlines[:4])) - before_ms
        self.now_ms = max(self.now_ms, at_ms)
        self.tick()
        for group in self.model.groups.values():
            topics = self.engine.groups.describe(group.name).topics
            # I5: no lease and no backoff is over before its time
            assert sum(one.in_flight_count for one in topics) == len(group.in_state("leased"))
            assert sum(one.backoff_count for one in topics) == len(group.in_state("backoff"))

    # --- what stands in the queues -------------------------------------------------------------

    def look(self) -> None:
        """What entered a queue is what had to (I5, I7), once (I1), in order and densely (I6)."""
        self.engine.write()
        topic = self.engine.catalog.topic(TOPIC)
        assert topic is not None
        found: list[str] = []
        for ends in self.engine.topics.ends(topic):
            seen = self.seen.get(ends.queue_id, 0)
            rows = self.rows(TOPIC, ends.queue_id, seen, ends.next_offset)
            assert [row.queue_offset for row in rows] == [*range(seen, ends.next_offset)], "I6"
            entered = [self.model.messages[row.sys.decode()] for row in rows]
            assert entered == sorted(entered, key=_turn), "I6: order in a queue is log order"
            found += [message.name for message in entered]
            for message, row in zip(entered, rows, strict=True):
                assert message.where is Where.ENTERS, "I5, I7: it is not due, or was settled"
                assert row.rest == body(message.name), "I1: its bytes are another"
                self.model.enter(message, (ends.queue_id, row.queue_offset), row.time_ms)
            self.seen[ends.queue_id] = ends.next_offset
            self._note_expired(ends.queue_id, ends.earliest_offset)
        assert len(found) == len(set(found)), "I1: it is there twice"
        assert not self.model.at(Where.ENTERS), "I1, I5: it is due, and not there"
        self._note_expired_letters()

    def rows(self, topic: str, queue_id: int, first: int, end: int) -> list[QueueRow]:
        return self.engine.queues.read(
            topic, "", queue_id, first, end, rows_max=100_000, bytes_max=1 << 30
        )

    def _note_expired(self, queue_id: int, first: int) -> None:
        if self.expiring:
            self._note_kept(queue_id, first)
        for group, held in self.model.held("fresh", "passed"):
            place = held.message.place
            if place[0] == queue_id and place[1] < first:
                old_ms = self.now_ms - held.message.entered_ms
                read_ms, unread_ms = self.ages
                assert read_ms, "nothing is to expire"
                assert old_ms >= read_ms, "it went too early"
                if held.state == "fresh" and not self.was_low:
                    assert unread_ms, "it was not read, and the disk has room"
                    assert old_ms >= unread_ms, "it went too early, unread"
                assert not self._is_in_the_way(group, held), "it went, and was withheld"
                held.state = "expired"

    def _note_kept(self, queue_id: int, first: int) -> None:
        """What is withheld becomes a delivery when its queue lets go of it, or is about to."""
        for group in self.model.groups.values():
            if group.on_dead is None:
                continue
            going = [
                held
                for held in group.in_state("fresh")
                if held.withheld
                or (held.message.place[0] == queue_id and held.message.place[1] < first)
            ]
            pending = self.retries(group) if going else ()
            for held in going:
                if held.message.name in pending:
                    group.keep(held)

    def retries(self, group: Group) -> set[str]:
        """Name what `latermq pending` tells that the group has ready, or in its backoff."""
        backoff = PendingFilter(kind=PendingKind.BACKOFF, group=group.name)
        items, _ = self.engine.pending.page(backoff, 1_000)
        return {item.sys.decode() for item in items}

    def _is_in_the_way(self, group: Group, held: Held) -> bool:
        """Tell whether something blocks its message group, since the last tick at least, and did
        when the queue let go of this message."""
        key = held.message.key
        if group.on_dead is None or not key or held.maybe:
            return False
        waiting = len(group.in_state("ready")) + sum(one.withheld for one in group.held.values())
        if not held.withheld and waiting + HELD_MAX // 2 >= HELD_MAX:
            return False  # no more are kept, or were not when the queue let go of it
        parked = any(one.dead_ms + LETTERS_MS > self.now_ms for one in group.parked(key))
        parked = parked and all(one.dead_ms < self.ticked_ms for one in group.parked(key))
        others = (one for one in group.in_state(*IN_HAND) if one.message.key == key)
        return parked or any(one.leased_ms < self.ticked_ms for one in others)

    def _note_expired_letters(self) -> None:
        for group in self.model.groups.values():
            here = self.letters(group.name)
            for letter in reversed(group.letters):  # of those of one message the oldest goes first
                here[letter.message.name] -= 1
                if here[letter.message.name] >= 0 or letter.state == "expired":
                    continue
                assert self.now_ms - letter.dead_ms >= LETTERS_MS, "a letter went too early"
                held = group.held[letter.message.name]
                if held.letter is letter and held.state == "dead":
                    held.state = "expired"
                letter.state = "expired"

    def letters(self, group: str) -> Counter[str]:
        """All in its dead-letter topic, redriven and dropped ones too."""
        name = f"%DLQ%{group}"
        if self.engine.catalog.topic(name) is None:
            return Counter()
        ends = self.engine.queues.ends(name, 0)
        rows = self.rows(name, 0, ends.earliest_offset, ends.next_offset)
        return Counter(row.sys.decode() for row in rows)

    def cursors(self, group: Group) -> dict[int, int]:
        """Up to where the group has looked, by queue."""
        topic, known = (
            self.engine.catalog.topic(TOPIC),
            self.engine.catalog.require_group(group.name),
        )
        assert topic is not None
        subscription = self.engine._state.subscription(known.id, topic.id)
        return {
            queue_id: self.engine._state.cursor(
                subscription, self.engine._state.queue(topic.id, queue_id)
            )
            for queue_id in range(topic.queue_count)
        }

    # --- after a start -------------------------------------------------------------------------

    def recovered(self, before: dict[str, object], written: int) -> None:
        """All that must hold after a start; what rules and invariants hold anyway is not here."""
        self.i1_every_send_is_there_once_with_its_bytes()
        assert facts(self.engine) == before, "I8: another state than before"
        assert self.engine.recovery is not None
        assert self.engine.recovery.end >= written, "I10: what was written is cut off"
        locked(
            DIRECTORY, config(self.retention_ms, self.unread_ms).store, self.files, self.now_ms
        )  # I12
        check_uses(self.engine)  # I9

    def i1_every_send_is_there_once_with_its_bytes(self) -> None:
        topic = self.engine.catalog.topic(TOPIC)
        assert topic is not None
        there: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        first: dict[int, int] = {}
        for ends in self.engine.topics.ends(topic):
            first[ends.queue_id] = ends.earliest_offset
            for row in self.rows(TOPIC, ends.queue_id, ends.earliest_offset, ends.next_offset):
                there[ends.queue_id, row.queue_offset] = row.sys, row.rest
        assert there == {
            message.place: (message.name.encode(), body(message.name))
            for message in self.model.at(Where.QUEUE)
            if message.place[1] >= first[message.place[0]]
        }, "I1, I2"
        items, _ = self.engine.pending.page(PendingFilter(topic=TOPIC), 1_000)
        waiting = {item.sys.decode(): item.rest for item in items if not item.group}
        assert waiting == {
            message.name: body(message.name) for message in self.model.at(Where.WAITS, Where.HALF)
        }, "I1, I7"

    def replays_agree(self) -> None:
        """I8, I11: starts on copies, with the checkpoints and without, lead where it is now."""
        before = facts(self.engine)
        for lost in (False, True, False):
            copy = MemoryFiles(self.files.disk.clone())
            if lost:
                lose_checkpoints(copy)
            engine = self.start(copy)
            assert facts(engine) == before, f"I8, I11: checkpoints lost: {lost}"
            self.replayed(engine)
            engine.abandon()

    def replayed(self, engine: Engine) -> None:
        """What rules ask of an engine that was made of a copy."""


def _turn(message: Message) -> tuple[int, int]:
    """What enters at one moment: in the order of due times, or of sending."""
    return (message.due_ms, 0) if message.pending_id else (0, message.number)
