"""Records → state: topics, groups, offsets, clients, users. See `journal.py`."""

from latermq_broker.catalog.access import decode_user
from latermq_broker.catalog.catalog import decode_group, decode_topic
from latermq_broker.catalog.limits import decode_limit
from latermq_broker.engine.journal.apply_deliveries import drop_subscriptions, unpark, void
from latermq_broker.engine.state.rewinds import Move
from latermq_broker.engine.state.state import (
    Applied,
    Appliers,
    EngineState,
    Stamp,
    Subscription,
    lite_reader,
)
from latermq_broker.store.records import catalog_records
from latermq_broker.store.records.catalog_records import (
    OFFSET_REWIND,
    OFFSET_SKIP,
    ConfigPayload,
    OffsetPayload,
    ResetPayload,
)
from latermq_broker.store.records.change_records import PUT, ChangePayload
from latermq_broker.store.records.record import RecordType


class CatalogApplier:
    """CONFIG, OFFSET, RESET, CLIENT, ACCESS, LIMIT: what is configured, and who is known."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {
            RecordType.CONFIG: Applied(self.config, self.config_headless),
            RecordType.OFFSET: Applied(self.offset),
            RecordType.RESET: Applied(self.reset),
            RecordType.CLIENT: Applied(self.client),
            RecordType.ACCESS: Applied(self.access),
            RecordType.LIMIT: Applied(self.limit),
        }

    def config(self, config: ConfigPayload, at: Stamp) -> None:
        state = self._state
        put = config.operation == catalog_records.CONFIG_PUT
        if config.kind == catalog_records.CONFIG_GROUP:
            if put:
                state.catalog.put_group(decode_group(config.body))
                return
            state.catalog.remove_group(config.id)
            drop_subscriptions(state, {key for key in state.subscriptions if key[0] == config.id})
            return
        if put:
            state.catalog.put_topic(decode_topic(config.body))
            return
        state.catalog.remove_topic(config.id)
        drop_subscriptions(state, {key for key in state.subscriptions if key[1] == config.id})
        state.halves.hurry(config.id)
        for letter in [letter for letter in state.parking if letter[0] == config.id]:
            unpark(state, letter)
        self._drop_queues(config)

    def config_headless(self, config: ConfigPayload, at: Stamp) -> None:
        """Drop a deleted topic's queues: all that counts while replay has no state yet."""
        put = config.operation == catalog_records.CONFIG_PUT
        if config.kind == catalog_records.CONFIG_TOPIC and not put:
            self._drop_queues(config)

    def _drop_queues(self, config: ConfigPayload) -> None:
        state = self._state
        state.uses.forget_topic(config.id)
        state.delayed_counts.pop(config.id, None)
        state.turns.forget(config.id)
        state.dead.pop(config.id, None)
        state.lites.pop(config.id, None)
        state.store.drop_topic(config.id)

    def offset(self, offset: OffsetPayload, at: Stamp) -> None:
        subscription = self._state.subscription(offset.group_id, offset.topic_id)
        if offset.act == OFFSET_SKIP:
            self._skip(subscription, offset.queue_id, offset.offset)
        else:
            self._note_rewind(subscription, offset.queue_id, offset.offset)
            if offset.act == OFFSET_REWIND:
                self._void_from(subscription, offset.queue_id, offset.offset)
                subscription.begin_anew(offset.queue_id, offset.offset)
            else:
                subscription.move(offset.queue_id, offset.offset)
            self._reset_lite(subscription, offset.offset)
            if subscription.gate is not None:
                subscription.gate.forget_held(offset.queue_id)
        self._state.announced.add(subscription)

    def _skip(self, subscription: Subscription, queue_id: int, offset: int) -> None:
        """Let go of what the group was not given below the offset; nothing given comes again."""
        cursor = subscription.cursors.get(queue_id, 0)
        subscription.move(queue_id, max(cursor, offset))
        if subscription.gate is not None:
            subscription.gate.trim(queue_id, offset)
        reader = lite_reader(self._state, subscription)
        if reader is not None:
            reader.skip(offset)

    def _void_from(self, subscription: Subscription, queue_id: int, offset: int) -> None:
        """Forget the group's deliveries that it is about to be given anew."""
        if not any(subscription.counts.values()):
            return
        leases = self._state.leases
        assert offset >= 0
        for delivery in leases.of({(subscription.group_id, subscription.topic_id)}):
            if delivery.queue_id == queue_id and delivery.offset >= offset:
                void(self._state, subscription, delivery)

    def reset(self, reset: ResetPayload, at: Stamp) -> None:
        state = self._state
        key = (reset.group_id, reset.topic_id)
        before = state.subscriptions.get(key)
        if before is not None:
            for queue_id, offset in enumerate(reset.offsets):
                self._note_rewind(before, queue_id, offset)
            drop_subscriptions(state, {key})
        subscription = state.subscription(*key)
        if before is not None:
            subscription.rewinds = before.rewinds
        subscription.cursors = dict(enumerate(reset.offsets))
        if reset.offsets:
            self._reset_lite(subscription, reset.offsets[0])
            state.announced.add(subscription)

    def _note_rewind(self, subscription: Subscription, queue_id: int, offset: int) -> None:
        """Remember that the group is given messages from `offset` on anew, if it was before."""
        lite = lite_reader(self._state, subscription) is not None
        if lite or offset < subscription.cursors.get(queue_id, 0):
            subscription.rewinds.note(Move(queue_id, 0, offset, self._state.leases.next_id))

    def limit(self, change: ChangePayload, at: Stamp) -> None:
        limit = decode_limit(change.body)
        if change.operation == PUT:
            self._state.limits.put(limit)
        else:
            self._state.limits.remove(*limit.key)

    def _reset_lite(self, subscription: Subscription, offset: int) -> None:
        """Let all lite topics go on at `offset`."""
        reader = lite_reader(self._state, subscription)
        if reader is not None:
            reader.floor = offset
            reader.cursors.clear()
            reader.ready = dict.fromkeys(self._state.lites[subscription.topic_id].topics)
            if subscription.gate is not None:  # retries of a lite topic that is gone, too
                reader.ready.update(dict.fromkeys(subscription.gate.groups))

    def client(self, client_id: str, at: Stamp) -> int:
        """Note the client; return the position that stands for it."""
        self._state.clients.put(client_id, at.position)
        return at.position

    def access(self, access: ChangePayload, at: Stamp) -> None:
        if access.operation == PUT:
            self._state.users.put(decode_user(access.body))
        else:
            self._state.users.remove(access.body.decode())
