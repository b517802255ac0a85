"""The core's one door: send, receive, ack, … tick.

Every call is synchronous: it decides on the state, appends records to the log's batch and applies
them to memory. Nothing may be told to a client before `write` has taken the batch. Time is handed
in; nothing here reads a clock, and nothing here waits.
"""

from collections.abc import Sequence
from typing import Final, Self

from latermq_broker.config import Config
from latermq_broker.delivery.filter import hash64
from latermq_broker.delivery.lease import Delivery, State
from latermq_broker.delivery.retry import auto_renew_ms
from latermq_broker.engine.apply import Journal
from latermq_broker.engine.attempts import Attempts
from latermq_broker.engine.dead_letters import DeadLetters
from latermq_broker.engine.groups import GroupAdmin
from latermq_broker.engine.lanes import Lanes
from latermq_broker.engine.model import (
    Delivered,
    Failure,
    Group,
    Outgoing,
    Ready,
    ReceiveRequest,
    Sent,
    Topic,
)
from latermq_broker.engine.pending import PendingView, delayed_id
from latermq_broker.engine.queues import QueueReads
from latermq_broker.engine.snapshot import restore, snapshot
from latermq_broker.engine.state import EngineState
from latermq_broker.engine.topics import TopicAdmin
from latermq_broker.errors import InvalidReceiptHandleError, RequestError
from latermq_broker.schedule.levels import level_ms
from latermq_broker.store.payload_lease import (
    EXTEND_KEEP_HANDLE,
    EXTEND_RENEWAL,
    ExtendPayload,
)
from latermq_broker.store.payload_message import (
    DEAD_FORWARDED,
    DEAD_REJECTED,
    QUEUE_UNSET,
    REF_DUE,
    MessagePayload,
    RefPayload,
    TimerPayload,
    decode_message_head,
)
from latermq_broker.store.record import RecordType
from latermq_broker.store.store import RecoveryReport, Store

CLIENT_ALIVE_MS: Final = 120_000  # protocol.md 2.3: silent for so long is offline
GONE_CLIENT_LEASE_MS: Final = 1_000  # protocol.md 2.6
CLIENTS_SEEN_MAX: Final = 100_000


class Engine:
    def __init__(self, store: Store, config: Config) -> None:
        self._config = config
        self._state = state = EngineState(store, config)
        self._journal = journal = Journal(state)
        self.store = store
        self.catalog = state.catalog
        self.topics = TopicAdmin(state, journal)
        self.groups = GroupAdmin(state, journal)
        self._attempts = Attempts(state, journal, self.topics.dead_letter_topic)
        self._lanes = Lanes(state, journal, self._attempts)
        self.pending = PendingView(state, journal, self._attempts)
        self.dead = DeadLetters(state, journal)
        self.queues = QueueReads(state, journal, self.dead)
        self.recovery: RecoveryReport | None = None
        self._opened_ms = 0

    @classmethod
    def open(cls, store: Store, config: Config, now_ms: int) -> Self:
        """Rebuild the state from checkpoint and log; do what became due meanwhile at the ticks."""
        engine = cls(store, config)
        engine.recovery = store.recover(
            lambda sections: restore(engine._state, engine._journal.applier, sections),
            engine._journal.replay,
            now_ms,
        )
        engine._opened_ms = now_ms
        return engine

    def ensure_topic(self, name: str, now_ms: int) -> Topic:
        """The topic; made on first use where allowed. Raises TopicNotFoundError."""
        return self.topics.ensure(name, now_ms)

    def ensure_group(self, name: str, now_ms: int) -> Group:
        """The group; made on first use where allowed. Raises GroupNotFoundError."""
        return self.groups.ensure(name, now_ms)

    def send(self, messages: Sequence[Outgoing], now_ms: int) -> list[Sent]:
        """Store messages of one topic, all or none; the delayed among them wait in the timer.

        Raises TopicNotFoundError, StoreFullError.
        """
        state = self._state
        topic = self.ensure_topic(messages[0].topic, now_ms)
        queue_id = state.next_queue(topic)
        offset = state.queue(topic.id, queue_id).next
        payloads: list[MessagePayload] = []
        for message in messages:
            due_ms = self._due_ms(message, now_ms)
            waits = due_ms > now_ms
            payloads.append(
                MessagePayload(
                    topic_id=topic.id,
                    queue_id=QUEUE_UNSET if waits else queue_id,
                    kind=0,
                    queue_offset=-1 if waits else offset,
                    due_ms=due_ms,
                    tag_hash=hash64(message.tag),
                    id_hash=hash64(message.message_id),
                    delay_level=message.delay_level,
                    key_hashes=tuple(map(hash64, message.keys)),
                    rest=message.rest,
                    sys=message.sys,
                )
            )
            offset += not waits
        if len(payloads) == 1:
            stamps = [self._journal.write(RecordType.MESSAGE, payloads[0], now_ms)]
        else:
            items = [(RecordType.MESSAGE, payload) for payload in payloads]
            stamps = self._journal.write_group(items, now_ms)
        return [
            Sent(
                position=stamp.position,
                queue_id=-1 if payload.queue_offset < 0 else queue_id,
                queue_offset=payload.queue_offset,
                due_ms=payload.due_ms if payload.queue_offset < 0 else 0,
                pending_id=(
                    delayed_id(payload.due_ms, stamp.position) if payload.queue_offset < 0 else ""
                ),
            )
            for payload, stamp in zip(payloads, stamps, strict=True)
        ]

    def receive(self, request: ReceiveRequest, now_ms: int) -> list[Delivered]:
        """Lease up to `count_max` messages to the group; [] when nothing is receivable now.

        Raises TopicNotFoundError, GroupNotFoundError, StoreFullError.
        """
        topic = self.ensure_topic(request.topic, now_ms)
        group = self.ensure_group(request.group, now_ms)
        if request.auto_renew:
            self.client_seen(request.client_id, now_ms)
        return self._lanes.receive(request, group, topic, now_ms)

    def ack(self, group: str, handles: Sequence[str], now_ms: int) -> list[RequestError | None]:
        """Per handle None, or InvalidReceiptHandleError. Repeats within the lease are fine."""
        results: list[RequestError | None] = []
        ids: list[int] = []
        for handle in handles:
            delivery = self._state.live_delivery(group, handle, now_ms)
            if delivery is not None:
                if delivery.id not in ids:
                    ids.append(delivery.id)
                results.append(None)
            elif self._was_done(handle, now_ms):
                results.append(None)
            else:
                results.append(_invalid(handle))
        if ids:
            self._journal.write(RecordType.ACK, tuple(ids), now_ms)
        return results

    def change_invisible(
        self,
        group: str,
        handle: str,
        invisible_ms: int,
        now_ms: int,
        *,
        suspend: bool = False,
        failure: Failure | None = None,
    ) -> str:
        """Move the deadline to now + `invisible_ms`; the old handle dies, the new one is returned.

        For a push consumer's lease, or with a failure, it is a nack: the attempt is over, and the
        group's backoff, where it has one, replaces `invisible_ms`. `suspend` gives the message back
        uncounted. Protocol: ChangeInvisibleDuration.
        Raises InvalidReceiptHandleError: acked, expired or superseded.
        """
        delivery = self._live(group, handle, now_ms)
        if delivery.state is State.BACKOFF or not (
            suspend or delivery.auto_renew or failure is not None
        ):
            payload = ExtendPayload(delivery.id, invisible_ms, 0)
            self._journal.write(RecordType.EXTEND, payload, now_ms)
        elif suspend:
            self._attempts.suspend(delivery, invisible_ms, now_ms)
        else:
            self._attempts.nack(delivery, invisible_ms, failure, now_ms)
        return self._state.handles.encode(delivery.id, delivery.generation)

    def forward(self, group: str, handle: str, now_ms: int, failure: Failure | None = None) -> None:
        """To the dead letters at the consumer's wish; idempotent within the lease.

        Raises InvalidReceiptHandleError.
        """
        if self._was_done(handle, now_ms):
            return
        delivery = self._live(group, handle, now_ms)
        rejected = failure is not None and failure.rejected
        reason = DEAD_REJECTED if rejected else DEAD_FORWARDED
        self._attempts.forward(delivery, reason, failure, now_ms)

    def give_back(self, group: str, handles: Sequence[str], now_ms: int) -> None:
        """A reply never reached its client: receivable after 1 s, the attempt not counted."""
        for handle in handles:
            delivery = self._state.live_delivery(group, handle, now_ms)
            if delivery is not None and delivery.state is State.LEASED:
                self._attempts.suspend(delivery, GONE_CLIENT_LEASE_MS, now_ms)

    def client_seen(self, client_id: str, now_ms: int) -> None:
        """Heartbeats and receives keep the renewal of a push consumer's leases going."""
        seen = self._state.clients_seen
        seen[client_id] = now_ms
        seen.move_to_end(client_id)
        if len(seen) > CLIENTS_SEEN_MAX:
            seen.popitem(last=False)

    def client_gone(self, client_id: str, now_ms: int) -> None:
        """Its auto-renewed leases become receivable after 1 s."""
        self._state.clients_seen[client_id] = 0  # known to be gone, also just after a restart
        deliveries = self._state.leases.deliveries
        for delivery_id in self._state.leases.renewed_by(client_id):
            if deliveries[delivery_id].deadline_ms > now_ms + GONE_CLIENT_LEASE_MS:
                payload = ExtendPayload(delivery_id, GONE_CLIENT_LEASE_MS, EXTEND_KEEP_HANDLE)
                self._journal.write(RecordType.EXTEND, payload, now_ms)

    def tick(self, now_ms: int) -> int | None:
        """Do what is due at `now_ms`, a bounded slice; return when to call again, None for never.

        Raises StoreFullError when the log takes no more; what was not done stays due.
        """
        for due_ms, position in self._state.timer.due(
            now_ms, self._config.delivery.tick_timers_max
        ):
            self._fire(due_ms, position, now_ms)
        leases = self._state.leases
        for delivery_id in leases.deadlines.expire(now_ms, self._config.delivery.tick_leases_max):
            delivery = leases.deliveries[delivery_id]
            try:
                self._reach_deadline(delivery, now_ms)
            except BaseException:
                if delivery_id in leases.deliveries:
                    leases.deadlines.arm(delivery_id, delivery.deadline_ms)
                raise
        return self.next_deadline_ms()

    def next_deadline_ms(self) -> int | None:
        deadlines = (
            self._state.timer.next_deadline_ms(),
            self._state.leases.deadlines.next_deadline_ms(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def take_ready(self) -> Ready:
        """What may have become receivable since the last call."""
        ready = self._state.ready
        if ready:
            self._state.ready = Ready()
        return ready

    def write(self) -> int:
        """Hand the batch to the file; returns the position up to which it is written."""
        return self.store.log.write()

    def snapshot(self) -> dict[str, bytes]:
        """The state as checkpoint sections; the log must be written."""
        return snapshot(self._state)

    def close(self, now_ms: int) -> None:
        """Write, sync, checkpoint, release the directory."""
        self.write()
        self.store.close(self.snapshot(), now_ms)

    def _due_ms(self, message: Outgoing, now_ms: int) -> int:
        if message.delay_level:
            return now_ms + level_ms(message.delay_level, self._config.delivery.delay_levels_ms)
        return message.deliver_at_ms

    def _fire(self, due_ms: int, position: int, now_ms: int) -> None:
        """A delayed message's time has come: a reference into a queue of its topic."""
        state = self._state
        record = state.store.log.read(position)
        head = decode_message_head(record.payload)
        topic = state.catalog.topic_by_id(head.topic_id)
        if topic is None:
            self._journal.write(RecordType.TIMER, TimerPayload(position, due_ms, 0), now_ms)
            return
        queue_id = state.next_queue(topic)
        payload = RefPayload(
            origin=position,
            tag_hash=head.tag_hash,
            queue_offset=state.queue(topic.id, queue_id).next,
            due_ms=due_ms,
            length=record.length,
            topic_id=topic.id,
            queue_id=queue_id,
            reason=REF_DUE,
        )
        self._journal.write(RecordType.REF, payload, now_ms)

    def _reach_deadline(self, delivery: Delivery, now_ms: int) -> None:
        state = self._state
        if delivery.state is State.BACKOFF:
            subscription = state.subscription(delivery.group_id, delivery.topic_id)
            self._journal.applier.make_ready(subscription, delivery)
        elif delivery.auto_renew and self._renews(delivery, now_ms):
            payload = ExtendPayload(
                delivery.id,
                auto_renew_ms(delivery.renewals),
                EXTEND_KEEP_HANDLE | EXTEND_RENEWAL,
            )
            self._journal.write(RecordType.EXTEND, payload, now_ms)
        elif delivery.deadline_ms > now_ms:
            state.leases.deadlines.arm(delivery.id, delivery.deadline_ms)
        else:
            self._attempts.expire(delivery, now_ms)

    def _renews(self, delivery: Delivery, now_ms: int) -> bool:
        """Protocol: ReceiveMessage.auto_renew; while its client lives, and not for ever."""
        if now_ms - delivery.leased_ms >= self._config.delivery.auto_renew_total_ms_max:
            return False
        # After a restart clients are given the time to show that they live.
        seen_ms = self._state.clients_seen.get(delivery.client_id, self._opened_ms)
        return now_ms - seen_ms < CLIENT_ALIVE_MS

    def _live(self, group: str, handle: str, now_ms: int) -> Delivery:
        delivery = self._state.live_delivery(group, handle, now_ms)
        if delivery is None:
            raise _invalid(handle)
        return delivery

    def _was_done(self, handle: str, now_ms: int) -> bool:
        known = self._state.handles.decode(handle)
        return known is not None and self._state.recently_done.holds(*known, now_ms)


def _invalid(handle: str) -> InvalidReceiptHandleError:
    shown = handle if len(handle) <= 12 else f"{handle[:12]}…"
    return InvalidReceiptHandleError(
        f"receipt handle {shown!r} is acknowledged, expired or unknown"
    )
