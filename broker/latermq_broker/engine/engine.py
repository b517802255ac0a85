"""The core's one door: send, receive, ack, … tick.

Every call is synchronous: it decides on the state, appends records to the log's batch and applies
them to memory. Nothing may be told to a client before `write` has taken the batch. Time is handed
in; nothing here reads a clock, and nothing here waits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Self

from latermq_broker.catalog.access import User
from latermq_broker.config.config import Config
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.engine.catalog.declarers import Declarers
from latermq_broker.engine.catalog.group_progress import GroupProgress
from latermq_broker.engine.catalog.groups import GroupAdmin
from latermq_broker.engine.catalog.limit_rules import LimitAdmin
from latermq_broker.engine.catalog.lites import Lites
from latermq_broker.engine.catalog.topics import TopicAdmin
from latermq_broker.engine.catalog.users import UserAdmin
from latermq_broker.engine.checkpoint.snapshot import restore
from latermq_broker.engine.journal.checkpoints import Checkpoints
from latermq_broker.engine.journal.indexing import IndexRebuild
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts
from latermq_broker.engine.outcome.by_handle import (
    live_delivery,
    live_ids,
    was_done,
    was_given_back,
)
from latermq_broker.engine.outcome.clock_steps import ClockSteps
from latermq_broker.engine.outcome.dead_letters import DeadLetters
from latermq_broker.engine.outcome.due import GONE_CLIENT_LEASE_MS, DueWork
from latermq_broker.engine.receive.lanes import Lanes
from latermq_broker.engine.receive.queues import QueueReads
from latermq_broker.engine.retention.retention import Retention
from latermq_broker.engine.send.plain_sends import PlainSends
from latermq_broker.engine.send.scheduled_sends import ScheduleAdmin
from latermq_broker.engine.send.send_gate import SendGate
from latermq_broker.engine.send.sends import Sends
from latermq_broker.engine.send.transactions import Transactions
from latermq_broker.engine.state.lag import has_messages
from latermq_broker.engine.state.model import (
    Delivered,
    Failure,
    Group,
    Outgoing,
    Ready,
    ReceiveRequest,
    Sent,
    Topic,
)
from latermq_broker.engine.state.state import EngineState
from latermq_broker.engine.views.group_ranking import GroupRanking
from latermq_broker.engine.views.holdings import Holdings
from latermq_broker.engine.views.log_copy import LogCopy
from latermq_broker.engine.views.message_groups import MessageGroups
from latermq_broker.engine.views.message_life import MessageLives
from latermq_broker.engine.views.message_query import MessageQuery
from latermq_broker.engine.views.overview import overview
from latermq_broker.engine.views.pending import PendingView
from latermq_broker.engine.views.watched import Watched
from latermq_broker.errors import (
    GivenUpError,
    HalfRestoredError,
    InvalidReceiptHandleError,
    RequestError,
    StoreFullError,
    UnreplayableError,
)
from latermq_broker.store.files import random_bits
from latermq_broker.store.records.lease_records import (
    EXTEND_BOUNDS,
    EXTEND_KEEP_HANDLE,
    ExtendPayload,
)
from latermq_broker.store.records.letter_records import DEAD_FORWARDED, DEAD_REJECTED
from latermq_broker.store.records.own_records import LifePayload
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.recovery import RecoveryReport
from latermq_broker.store.store import Store

SWEEP_MS: Final = 60_000  # of another's log, between two looks for empty slots of its deadlines
EPOCH_ID_BITS: Final = 40  # delivery ids of one life of the broker, before they reach the next's
FIRST_ID_BITS: Final = 39  # of that, where the ids of a life begin; as many are left behind it
FIRST_ID_STEP: Final = 8  # receipt handles of eight ids in sequence share a hash
STRIDE_BITS: Final = 32  # of a generation


class Chore:
    """Work of the engine's own that lasts, and that may be done in parts with calls in between.

    Args:
        kind: names it.
        next_deadline_ms: when a part is due; None: none.
        part: does a part at `now_ms`, returns whether the next may follow at once.
    """

    def __init__(
        self, kind: str, next_deadline_ms: Callable[[], int | None], part: Callable[[int], bool]
    ) -> None:
        self.kind = kind
        self.next_deadline_ms = next_deadline_ms
        self.part = part

    def step(self, now_ms: int) -> None:
        """Do all parts that may follow each other, if one is due."""
        while self.part(now_ms):
            pass


class Engine:
    def __init__(self, store: Store, config: Config) -> None:
        self.config = config
        self._state = state = EngineState(store, config)
        self._journal = journal = Journal(state)
        self.store = store
        self.catalog = state.catalog
        self.wall = state.wall
        self.hearing = state.hearing
        self.figures = state.figures
        self.conditions = state.conditions
        self.announced = state.announced
        self.topics = TopicAdmin(state, journal)
        self.groups = GroupAdmin(state, journal)
        self.users = UserAdmin(state, journal)
        self.limits = LimitAdmin(state, journal)
        self.message_groups = MessageGroups(state)
        self.lites = Lites(state, journal, self.groups)
        self._attempts = Attempts(state, journal, self.topics.dead_letter_topic)
        self._due = DueWork(state, journal, self._attempts)
        self.unproved = self._due.unproved
        self.renews_for = self._due.renews_for
        self.plain = PlainSends(state, journal, self.topics)
        self._sends = Sends(state, journal, self.topics, self.lites)
        self.transactions = Transactions(state, journal, self.topics)
        self.gate = SendGate(state.limits)
        self.schedules = ScheduleAdmin(state, journal, self.gate)
        self.declarers = Declarers(state, journal)
        self.declarations = state.declarations
        self._lanes = Lanes(state, journal, self._attempts)
        self.clock = ClockSteps(state, journal)
        self.pending = PendingView(state, journal, self._attempts, self.transactions)
        self.dead = DeadLetters(state, journal)
        self.queues = QueueReads(state, journal, self.dead)
        self.retention = Retention(state, journal, self._attempts)
        self.log_copy = LogCopy(state, self.retention)
        self.progress = GroupProgress(state)
        self.messages = MessageQuery(state)
        self.lives = MessageLives(state)
        self.ranking = GroupRanking(state, self.groups)
        self.watched = Watched(state)
        self.holdings = Holdings(state, journal)
        self._index_rebuild = IndexRebuild(state)
        self.checkpoints = Checkpoints(state)
        self._steps: Final = (
            self.clock.note,
            self._due.fire_timers,
            self._due.end_leases,
            self.transactions.tick,
            self.schedules.tick,
            self.declarers.tick,
            self.lites.tick,
            self._sends.tick,
        )
        self.chores: Final[tuple[Chore, ...]] = (
            Chore("retention", self.retention.next_deadline_ms, self.retention.part),
            Chore("index", self._index_rebuild.next_deadline_ms, self._index_rebuild.part),
        )
        self.overview = partial(overview, state, self.retention, self._due)
        self.write = store.log.write
        self.reconfigure = partial(_reconfigure, self, state)
        self.apply_up_to = partial(_apply_up_to, state, journal)
        self.recovery: RecoveryReport | None = None

    @classmethod
    def open(cls, store: Store, config: Config, now_ms: int) -> Self:
        """Rebuild the state from checkpoint and log; do what became due meanwhile at the ticks."""
        engine = cls.behind(store, config, now_ms)
        engine.begin_life(now_ms)
        return engine

    @classmethod
    def behind(cls, store: Store, config: Config, now_ms: int, until: int = 0) -> Self:
        """Rebuild the state; with `until`, of a copy of another's log that ends there.

        Such an engine has only `apply_up_to` called and its checkpoints taken, before `begin_life`.
        """
        engine, singly = cls(store, config), False
        while True:
            engine._journal.singly = singly
            try:
                engine.recovery = store.recover(
                    partial(restore, engine._state), engine._journal.replay, now_ms, until
                )
            except GivenUpError as error:  # a record behind may bring the state
                if error.position <= store.dropped.behind:
                    raise
                store.dropped.behind = error.position
            except HalfRestoredError:  # an older one, or the log, brings it
                pass
            except UnreplayableError as refusal:  # by what the checkpoint said, or by its own words
                if not store.choice.distrust(refusal) and singly:
                    raise
                singly = True
            else:
                return engine
            engine.checkpoints.release()
            engine = cls(store, config)

    def begin_life(self, now_ms: int) -> None:
        """Decide from here on; the store's life has begun."""
        # A handle may outlive its lease: power failed before the lease was durable, or the log is a
        # copy from before the lease, restored or taken over, whose lives have equal epochs. The
        # delivery id must not become that of another message, which an ack would settle unseen.
        # Nor must the next generation of a delivery that both have be the same: hence the stride.
        leases, log, files = self._state.leases, self.store.log, self.store.files
        first_id = random_bits(files, FIRST_ID_BITS) // FIRST_ID_STEP * FIRST_ID_STEP
        first_id += log.epoch - 1 << EPOCH_ID_BITS
        life = LifePayload(max(first_id, 1), random_bits(files, STRIDE_BITS) | 1)
        leases.next_id = max(leases.next_id, life.first_id)
        self._journal.begin_life(life, now_ms)
        self._due.opened_ms = max(now_ms, log.last_store_ms)
        self._state.counts_flow = True

    def ensure_topic(self, name: str, now_ms: int, user: User | None = None) -> Topic:
        """Find the topic, or make it on first use where allowed. Raises TopicNotFoundError."""
        return self.topics.ensure(name, now_ms, user)

    def ensure_group(self, name: str, now_ms: int, user: User | None = None) -> Group:
        """Find the group, or make it on first use where allowed. Raises GroupNotFoundError."""
        return self.groups.ensure(name, now_ms, user)

    def send(
        self, messages: Sequence[Outgoing], now_ms: int, user: User | None = None
    ) -> list[Sent]:
        """Store messages of one topic, all or none, but for those whose dedup id is known.

        Raises as `Sends.send`.
        """
        return self._sends.send(messages, now_ms, user)

    def receive(self, request: ReceiveRequest, now_ms: int) -> list[Delivered]:
        """Lease up to `count_max` messages to the group; [] when nothing is receivable now.

        No topic is made by it, and a group with its first message only: until then it waits.
        Raises TopicNotFoundError, GroupNotFoundError, StoreFullError.
        """
        topic, group = self.catalog.topic(request.topic), self.catalog.group(request.group)
        if topic is None or group is None:
            self.topics.check_read(request.topic)
            self.groups.check_use(request.group, request.user, now_ms)
            if topic is None or not has_messages(self._state, topic):
                return []
            group = self.ensure_group(request.group, now_ms, request.user)
        delivered = self._lanes.receive(request, group, topic, now_ms)
        if request.auto_renew and delivered:
            self.client_seen(request.client_id, now_ms)
        self.figures.messages_delivered += len(delivered)
        return delivered

    def ack(
        self, group: str, handles: Sequence[str], now_ms: int, topic: str | None = None
    ) -> list[RequestError | None]:
        """Acknowledge; per handle None, or InvalidReceiptHandleError: also for a message of another
        topic than the one that is named. Repeats within the lease are fine."""
        results: list[RequestError | None] = [None] * len(handles)
        lives = live_ids(self._state, group, handles, now_ms, topic)
        ids = tuple(dict.fromkeys(lives))  # each once
        if 0 in ids:
            ids = tuple(filter(None, ids))
            for index, live in enumerate(lives):
                if not live and not was_done(self._state, group, handles[index], now_ms, topic):
                    results[index] = _invalid(handles[index])
        if ids:
            if self.config.compat.strict:
                self._attempts.acknowledge_in_order(ids, now_ms)
            else:
                self._journal.write(RecordType.ACK, ids, now_ms)
            self.figures.messages_acknowledged += len(ids)
        return results

    def change_invisible(
        self,
        group: str,
        handle: str,
        invisible_ms: int,
        now_ms: int,
        *,
        suspend: bool = False,
        extends: bool = False,
        repeatable: bool = False,
        insists: bool = False,
        failure: Failure | None = None,
        topic: str | None = None,
    ) -> str:
        """Move the deadline to now + `invisible_ms`; the old handle dies, the new one is returned.

        For a push consumer's lease, or with a failure, it is a nack: the attempt is over, and the
        group's backoff, where it has one, replaces `invisible_ms`, unless the consumer `insists`.
        `suspend` gives the message back uncounted. With `extends` it is none of these: the handle
        stays, and the broker does not renew the lease beyond. With `repeatable` it is a nack or a
        suspension, and a repeat of it changes nothing and returns `handle`.
        Protocol: ChangeInvisibleDuration.
        Raises InvalidReceiptHandleError: acked, expired, superseded, or not of the topic named.
        """
        if repeatable and was_given_back(self._state, group, handle, now_ms, topic):
            return handle
        delivery = _live(self._state, group, handle, now_ms, topic)
        if extends and delivery.state is State.LEASED:
            payload = ExtendPayload(delivery.id, invisible_ms, EXTEND_KEEP_HANDLE | EXTEND_BOUNDS)
            self._journal.write(RecordType.EXTEND, payload, now_ms)
        elif delivery.state is State.BACKOFF or not (
            suspend or repeatable or delivery.auto_renew or failure is not None
        ):
            payload = ExtendPayload(delivery.id, invisible_ms, 0)
            self._journal.write(RecordType.EXTEND, payload, now_ms)
        elif suspend:
            self._attempts.suspend(delivery, invisible_ms, now_ms)
        else:
            self._attempts.nack(delivery, invisible_ms, failure, now_ms, insists=insists)
        return self._state.handles.encode(delivery.id, delivery.generation)

    def forward(
        self,
        group: str,
        handle: str,
        now_ms: int,
        failure: Failure | None = None,
        *,
        topic: str | None = None,
    ) -> None:
        """Move a message to the dead letters at the consumer's wish; idempotent within the lease.

        Raises InvalidReceiptHandleError: as `change_invisible`.
        """
        if was_done(self._state, group, handle, now_ms, topic):
            return
        delivery = _live(self._state, group, handle, now_ms, topic)
        rejected = failure is not None and failure.rejected
        reason = DEAD_REJECTED if rejected else DEAD_FORWARDED
        self._attempts.forward(delivery, reason, failure, now_ms)

    def give_back(self, group: str, handles: Sequence[str], now_ms: int) -> None:
        """Give back what never reached its client: receivable after 1 s, attempt not counted."""
        for handle in handles:
            delivery = live_delivery(self._state, group, handle, now_ms)
            if delivery is not None and delivery.state is State.LEASED:
                self._attempts.suspend(delivery, GONE_CLIENT_LEASE_MS, now_ms)

    def client_seen(self, client_id: str, now_ms: int, group: str = "") -> bool:
        """Keep the renewal of a push consumer's leases going; of one group, if it is named.

        Returns:
            Whether there are any.
        """
        return self._due.client_seen(client_id, now_ms, group)

    def client_gone(self, client_id: str, now_ms: int, group: str = "") -> bool:
        """Let its auto-renewed leases, of one group if it is named, be receivable after 1 s.

        Returns:
            Whether there are any.
        """
        return self._due.client_gone(client_id, now_ms, group)

    def end_silent_clients(self, now_ms: int) -> bool:
        """End the renewal for all clients silent for too long; tell whether there were any."""
        return self._due.end_silent(now_ms)

    def tick(self, now_ms: int, *, chores: bool = True) -> int | None:
        """Do what is due at `now_ms`, a bounded slice; return when to call again, None for never.

        Args:
            chores: those, too; else the caller does them, and the return value leaves them out.

        Raises StoreFullError when the log takes no more; what was not done stays due.
        """
        full: StoreFullError | None = None
        for step in self._steps:  # one that finds no room does not keep the others from theirs
            try:
                step(now_ms)
            except StoreFullError as error:
                full = full or error
        if chores:
            for chore in self.chores:
                chore.step(now_ms)
        if full is not None:
            raise full
        return self.next_deadline_ms(chores=chores)

    def next_deadline_ms(self, *, chores: bool = True) -> int | None:
        """Return when `tick` is to be called; None: nothing will be due."""
        timer_ms = self._state.timer.next_deadline_ms()
        next_ms = None if timer_ms is None else timer_ms - self._state.wall.ahead_ms
        for deadline_ms in (
            self._state.leases.deadlines.next_deadline_ms(),
            self._state.halves.deadlines.next_deadline_ms(),
            self.schedules.next_deadline_ms(),
            self.declarers.next_deadline_ms(),
            self.lites.next_deadline_ms(),
            self._sends.next_deadline_ms(),
            *(chore.next_deadline_ms() for chore in self.chores if chores),
        ):
            if deadline_ms is not None and (next_ms is None or deadline_ms < next_ms):
                next_ms = deadline_ms
        return next_ms

    def take_ready(self) -> Ready:
        """Return what may have become receivable since the last call."""
        return self._state.announced.take()

    def close(self, now_ms: int, *, drained: bool = True) -> None:
        """Write, sync, checkpoint, release the directory.

        `drained`: every reply went out, so whoever was told of a lease has it.
        """
        self.write()
        try:
            self.store.close(lambda: self.checkpoints.take(now_ms), now_ms, drained=drained)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the directory without writing anything; again is harmless."""
        self.checkpoints.release()
        self.store.abandon()


def _apply_up_to(state: EngineState, journal: Journal, end: int) -> None:
    """Apply what another wrote into the log's files up to `end`; its clock moves the timer on.

    It is asked for one that is due, so that it passes those that have fired and lets them go.
    """
    log = state.store.log
    before_ms = log.last_store_ms
    state.store.replay_up_to(end, journal.replay)
    now_ms = log.last_store_ms
    state.timer.due(state.wall.at(now_ms), 1)
    if now_ms // SWEEP_MS > before_ms // SWEEP_MS:
        state.leases.deadlines.forget_empty(now_ms)
        state.halves.deadlines.forget_empty(now_ms)


def _live(state: EngineState, group: str, handle: str, now_ms: int, topic: str | None) -> Delivery:
    delivery = live_delivery(state, group, handle, now_ms, topic)
    if delivery is None:
        raise _invalid(handle)
    return delivery


def _invalid(handle: str) -> InvalidReceiptHandleError:
    shown = handle if len(handle) <= 12 else f"{handle[:12]}…"
    return InvalidReceiptHandleError(
        f"receipt handle {shown!r} is acknowledged, expired, of another topic or unknown"
    )


def _reconfigure(engine: Engine, state: EngineState, config: Config) -> None:
    """Go on with other ages and limits: only what `reloading.LIVE` names may differ."""
    engine.config = state.config = config
    engine.store.disk.reconfigure(config.store)
    engine.retention.reconfigure(config.store)
