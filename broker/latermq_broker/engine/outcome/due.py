"""What happens because time passes: timers fire, leases end or are renewed, backoffs are over."""

import struct
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.retry import auto_renew_ms
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts, queue_for
from latermq_broker.engine.outcome.by_handle import live_delivery
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.log.read_ahead import RECORD_BYTES, read_ahead
from latermq_broker.store.log.read_unverified import read_unverified
from latermq_broker.store.records.lease_records import (
    EXTEND_GONE,
    EXTEND_KEEP_HANDLE,
    EXTEND_RENEWAL,
    ExtendPayload,
)
from latermq_broker.store.records.message_records import (
    REF_DUE,
    RefPayload,
    TimerPayload,
    decode_message_head,
)
from latermq_broker.store.records.record import RecordType

GONE_CLIENT_LEASE_MS: Final = 1_000  # protocol.md 2.6
CLIENTS_SEEN_MAX: Final = 100_000

tuple_new: Final = tuple.__new__  # as RefPayload(...), without its keyword handling


class DueWork:
    def __init__(self, state: EngineState, journal: Journal, attempts: Attempts) -> None:
        self._state = state
        self._journal = journal
        self._attempts = attempts
        self._config: DeliveryConfig = state.config.delivery
        self._silent_ms_max = state.config.server.client_silent_ms_max
        self._seen: OrderedDict[str, int] = OrderedDict()  # clients; lost at a restart
        self.opened_ms = 0  # clients are given `_silent_ms_max` from here to show that they live

    def fire_timers(self, now_ms: int) -> None:
        """Fire due timers, a slice; topics take turns. StoreFullError: the rest stays due."""
        state = self._state
        wall_ms = state.wall.at(now_ms)
        due = state.timer.due(wall_ms, self._config.tick_timers_max, self._topics_at)
        read_ahead(state.store.log, [(position, RECORD_BYTES) for _, position in due])
        waiting = len(state.timer)
        try:
            self._fire(due, now_ms)
        finally:
            fired = due[: waiting - len(state.timer)]
            state.figures.messages_due += len(fired)
            for due_ms, count in Counter([due_ms for due_ms, _ in fired]).items():
                state.figures.lateness_ms.observe_some(wall_ms - due_ms, count)

    def _topics_at(self, positions: Sequence[int]) -> list[int]:
        """Return the topic id of each delayed message; 0: it cannot be read."""
        topics: list[int] = []
        read_ahead(self._state.store.log, [(position, RECORD_BYTES) for position in positions])
        for position in positions:
            try:
                topics.append(decode_message_head(self._state.read(position).payload).topic_id)
            except CorruptRecordError:
                topics.append(0)
        return topics

    def end_leases(self, now_ms: int) -> None:
        """End a bounded slice of leases; groups take turns. StoreFullError: the rest stays due."""
        leases = self._state.leases
        due = leases.expire(now_ms, self._config.tick_leases_max, self._weight)
        for index, delivery in enumerate(due):
            try:
                self._reach_deadline(delivery, now_ms)
            except BaseException:
                for undone in due[index:]:
                    leases.wait_again(undone)
                raise

    def _weight(self, group_id: int) -> int:
        group = self._state.catalog.group_by_id(group_id)
        return group.weight if group is not None else 1

    def client_seen(self, client_id: str, now_ms: int, group: str = "") -> bool:
        """Keep the renewal of its leases going, if it holds any; in the group, if one is named.

        Of others nothing is remembered: whoever makes up client ids pushes none out.
        """
        self._state.hearing.client_back(client_id)
        leases = self._state.leases
        if group:
            if not self._of_group(leases.renewed_by(client_id), group):
                return False
        elif client_id not in leases.renewed_clients():
            return False
        self._remember_seen(client_id, now_ms)
        return True

    def renews_for(self, client_id: str) -> bool:
        """Tell whether a client has leases that the broker renews."""
        return bool(self._state.leases.renewed_by(client_id))

    def client_gone(self, client_id: str, now_ms: int, group: str = "") -> bool:
        """Let its auto-renewed leases, of one group if it is named, be receivable after 1 s.

        Who speaks for a client in one group may be a stranger to another that its id has leases of.
        """
        deliveries = self._state.leases.deliveries
        renewed = self._state.leases.renewed_by(client_id)
        ended = self._of_group(renewed, group) if group else renewed
        if not ended:
            return False
        if len(ended) == len(renewed):
            self._remember_seen(client_id, 0)  # known to be gone, also just after a restart
        for delivery_id in ended:
            left_ms = deliveries[delivery_id].deadline_ms - now_ms
            lasts = left_ms > GONE_CLIENT_LEASE_MS
            if lasts or (left_ms > 0 and not deliveries[delivery_id].lost):
                flags = EXTEND_KEEP_HANDLE | EXTEND_GONE
                payload = ExtendPayload(delivery_id, min(left_ms, GONE_CLIENT_LEASE_MS), flags)
                self._journal.write(RecordType.EXTEND, payload, now_ms)
        return True

    def unproved(self, group: str, handles: Sequence[str], now_ms: int) -> None:
        """Renew no more the leases of a reply that may not have arrived: each ends by itself.

        Once: the next lease of the message is renewed again. Leases that are not renewed, or over,
        stay as they are.
        """
        flags = EXTEND_KEEP_HANDLE | EXTEND_GONE
        for handle in handles:
            delivery = live_delivery(self._state, group, handle, now_ms)
            if delivery is None or delivery.state is not State.LEASED or not delivery.auto_renew:
                continue
            payload = ExtendPayload(delivery.id, delivery.deadline_ms - now_ms, flags)
            self._journal.write(RecordType.EXTEND, payload, now_ms)

    def _of_group(self, delivery_ids: Sequence[int], name: str) -> list[int]:
        """List those of the deliveries that are the group's."""
        group = self._state.catalog.group(name)
        if group is None:
            return []
        deliveries = self._state.leases.deliveries
        return [each for each in delivery_ids if deliveries[each].group_id == group.id]

    def end_silent(self, now_ms: int) -> bool:
        """Let go of clients silent for too long that hold renewed leases; False: there are none.

        Also those that never said what they are, or came before a restart and not again: no
        session of theirs can expire.
        """
        judged_ms = self._state.hearing.judged_ms(now_ms, self._silent_ms_max)
        silent = [
            client_id
            for client_id in self._state.leases.renewed_clients()
            if judged_ms - self._seen_ms(client_id) > self._silent_ms_max
        ]
        for client_id in silent:
            self.client_gone(client_id, now_ms)
        return bool(silent)

    def _seen_ms(self, client_id: str) -> int:
        """Tell when a client was last seen; after a restart it has time to show that it lives."""
        return self._seen.get(client_id, self.opened_ms)

    def _remember_seen(self, client_id: str, seen_ms: int) -> None:
        seen = self._seen
        seen[client_id] = seen_ms
        seen.move_to_end(client_id)
        if len(seen) > CLIENTS_SEEN_MAX:
            seen.popitem(last=False)

    def _fire(self, due: Sequence[tuple[int, int]], now_ms: int) -> None:
        """Put delayed messages that are due into queues of their topics: a reference each."""
        state = self._state
        refs: list[RefPayload] = []
        nexts: dict[tuple[int, int], int] = {}  # offsets behind `refs`, by queue
        for due_ms, position in due:
            topic = None
            try:
                record = state.read(position)
            except CorruptRecordError as error:
                state.damaged.give_up(error)
                topic_id, length = self._damaged(position)
            else:
                head = decode_message_head(record.payload)
                topic_id, length = head.topic_id, record.length
                topic = state.catalog.topic_by_id(topic_id)
            if topic is None:
                self._journal.write_refs(refs, now_ms)
                refs.clear()
                cancel = TimerPayload(position, due_ms, 0, topic_id, length)
                self._journal.write(RecordType.TIMER, cancel, now_ms)
                continue
            queue_id = queue_for(state, topic, record)
            key = topic_id, queue_id
            offset = nexts.get(key, -1)
            if offset < 0:
                offset = state.queue(topic_id, queue_id).next
            nexts[key] = offset + 1
            fields = position, head.tag_hash, offset, due_ms, length, topic_id, queue_id, REF_DUE
            refs.append(tuple_new(RefPayload, fields))
        self._journal.write_refs(refs, now_ms)

    def _damaged(self, position: int) -> tuple[int, int]:
        """Find (topic id, record length) of a delayed message whose record is damaged; 0: unknown.

        Counters are kept by them; what the damage spared is believed if it makes sense.
        """
        counts = self._state.delayed_counts
        remains = read_unverified(self._state.store.log.row, position)
        length = remains.length if remains is not None else 0
        if remains is not None and remains.type is RecordType.MESSAGE:
            with suppress(struct.error):
                topic_id = decode_message_head(remains.payload).topic_id
                if topic_id in counts:
                    return topic_id, length
        return (next(iter(counts)) if len(counts) == 1 else 0), length

    def _reach_deadline(self, delivery: Delivery, now_ms: int) -> None:
        state = self._state
        if delivery.state is State.BACKOFF:
            subscription = state.subscription(delivery.group_id, delivery.topic_id)
            self._journal.deliveries.make_ready(subscription, delivery)
        elif delivery.auto_renew and (longer := self._longer(delivery, now_ms)) is not None:
            self._journal.write(RecordType.EXTEND, longer, now_ms)
        elif delivery.deadline_ms > now_ms:
            state.leases.hold(delivery, delivery.deadline_ms)
        elif (until_ms := state.hearing.extended_ms(delivery.deadline_ms)) > now_ms:
            payload = ExtendPayload(delivery.id, until_ms - now_ms, EXTEND_KEEP_HANDLE)
            self._journal.write(RecordType.EXTEND, payload, now_ms)
        else:
            self._attempts.expire(delivery, now_ms, client_gone=self._is_gone(delivery, now_ms))

    def _is_gone(self, delivery: Delivery, now_ms: int) -> bool:
        """Return whether the holder of a lease could not answer any more when the lease ended."""
        hearing = self._state.hearing
        if delivery.lost or hearing.has_left(delivery.client_id):
            return True
        judged_ms = hearing.judged_ms(now_ms, self._silent_ms_max)
        silent_ms = judged_ms - self._seen_ms(delivery.client_id)
        return delivery.auto_renew and silent_ms >= self._silent_ms_max

    def _longer(self, delivery: Delivery, now_ms: int) -> ExtendPayload | None:
        """Decide, shortly before its deadline, how a lease that the broker renews goes on.

        While its client lives, renewal by renewal up to `auto_renew_total_ms_max` since delivery;
        then once more, by the group's wait between attempts; then not any more. Not at all once the
        holder said when it ends. The handle stays. Protocol: ReceiveMessage.auto_renew.
        """
        if delivery.bounded:
            return None
        if not delivery.renewals and self._state.store.cut_offs.concern(delivery.leased_ms):
            # The reply that granted it may have died with the broker: its client, though alive,
            # need not know of it. Let it expire once.
            return None
        hearing = self._state.hearing
        judged_ms = hearing.judged_ms(now_ms, self._silent_ms_max)
        if judged_ms - self._seen_ms(delivery.client_id) >= self._silent_ms_max:
            return None
        end_ms = delivery.leased_ms + self._config.auto_renew_total_ms_max
        end_ms += hearing.missed_since_ms(delivery.leased_ms)
        if delivery.deadline_ms < end_ms:
            lasting_ms = min(auto_renew_ms(delivery.renewals), end_ms - now_ms)
            if lasting_ms <= 0:
                return None  # the broker was away for so long
            flags = EXTEND_KEEP_HANDLE | EXTEND_RENEWAL
            return ExtendPayload(delivery.id, lasting_ms, flags)
        if delivery.deadline_ms > end_ms or delivery.deadline_ms <= now_ms:
            return None
        lasting_ms = end_ms - now_ms + self._attempts.wait_ms(delivery)
        return ExtendPayload(delivery.id, lasting_ms, EXTEND_KEEP_HANDLE)
