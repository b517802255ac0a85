"""Records → state: lite topics. See `journal.py`."""

from latermq_broker.engine.journal.apply_deliveries import lite_retries_may_go, void
from latermq_broker.engine.state.rewinds import Move
from latermq_broker.engine.state.state import (
    Applied,
    Appliers,
    EngineState,
    Stamp,
    Subscription,
    lite_reader,
)
from latermq_broker.store.records.lite_records import LITE_EXPIRED, LitePayload
from latermq_broker.store.records.record import RecordType


class LiteApplier:
    """LITE: where a group goes on in lite topics; lite topics that nobody sent to for too long."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {
            RecordType.LITE: Applied(self.lite),
        }

    def lite(self, lite: LitePayload, at: Stamp) -> None:
        state = self._state
        parent = state.lites.get(lite.topic_id)
        if parent is None:
            return  # nothing was sent yet
        if lite.kind == LITE_EXPIRED:
            for key, end in lite.rows:
                parent.expire(key, end)
            lite_retries_may_go(state, lite.topic_id)
            return
        subscription = state.subscription(lite.group_id, lite.topic_id)
        reader = lite_reader(state, subscription)
        assert reader is not None
        for key, offset in lite.rows:
            self._void(subscription, key)
            if offset < reader.next(key):
                subscription.rewinds.note(Move(0, key, offset, state.leases.next_id))
            if key in parent.topics:
                reader.cursors[key] = offset
            reader.may_go(key)
        state.announced.add(subscription)

    def _void(self, subscription: Subscription, key: int) -> None:
        """Forget the deliveries of a lite topic: their handles are good for nothing."""
        state = self._state
        group = subscription.ordered().groups.get(key)
        for _, delivery_id in list(group.live) if group is not None else ():
            void(state, subscription, state.leases.deliveries[delivery_id])
