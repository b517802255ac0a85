"""What will be removed unread before long: said once, while there is time to read it.

Of topics that have an age for what is unread. Where there is none, the disk decides, and says so
when it is nearly full.
"""

import logging
from collections.abc import Iterator
from typing import Final

from latermq_broker.engine.retention.ages import Ages
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import DamagedQueueError
from latermq_broker.store.derived.consume_queue import ConsumeQueue

log = logging.getLogger("latermq.engine")

SOON_PERCENT: Final = 90  # of its age
ROW_COST: Final = 32
NEVER_MS: Final = 1 << 62


class ExpiringSoon:
    """
    `pairs`: group and topic → when the oldest that the group has not read goes.
    """

    def __init__(self, state: EngineState, ages: Ages) -> None:
        self.pairs: dict[tuple[str, str], int] = {}
        self._state = state
        self._ages = ages

    def look(self, now_ms: int) -> Iterator[int]:
        """Find them, a bit at a time."""
        pairs: dict[tuple[str, str], int] = {}
        catalog = self._state.catalog
        for subscription in list(self._state.subscriptions.values()):
            topic = catalog.topic_by_id(subscription.topic_id)
            group = catalog.group_by_id(subscription.group_id)
            if topic is None or group is None or topic.internal:
                continue
            age_ms = self._ages.unread_ms(topic) if self._ages.read_ms(topic) else 0
            if not age_ms:
                continue
            soon_ms = now_ms - age_ms * SOON_PERCENT // 100
            for queue_id in range(topic.queue_count):
                queue = self._state.queue(topic.id, queue_id)
                oldest = max(subscription.unread_from(queue_id), queue.first)
                stored_ms = self._stored_ms(queue, oldest) if oldest < queue.next else NEVER_MS
                if stored_ms <= soon_ms:
                    goes_ms = stored_ms + age_ms
                    known_ms = pairs.get((group.name, topic.name), goes_ms)
                    pairs[group.name, topic.name] = min(known_ms, goes_ms)
                yield ROW_COST
        for (group_name, topic_name), goes_ms in pairs.items():
            if (group_name, topic_name) not in self.pairs:
                log.warning(
                    "messages will be removed unread",
                    extra={
                        "group": group_name,
                        "topic": topic_name,
                        "in_ms": max(0, goes_ms - now_ms),
                    },
                )
        self.pairs = pairs

    def _stored_ms(self, queue: ConsumeQueue, offset: int) -> int:
        """Tell when a message was stored; of a queue that is damaged: never."""
        try:
            return queue.get(offset).time_ms
        except DamagedQueueError as error:
            self._state.damaged.note_queue(error)
            return NEVER_MS
