"""Topics and groups behind a lost range: see `lossy.py`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from latermq_broker.catalog.catalog import TopicType, decode_group, decode_topic
from latermq_broker.engine.journal.apply_catalog import CatalogApplier
from latermq_broker.engine.journal.indexing import reach
from latermq_broker.engine.state.model import Topic
from latermq_broker.engine.state.state import EngineState, Stamp
from latermq_broker.offline.mending.lost_catalog import LostCatalog
from latermq_broker.store.records.catalog_records import (
    CONFIG_DELETE,
    CONFIG_GROUP,
    CONFIG_PUT,
    ConfigPayload,
    OffsetPayload,
    ResetPayload,
    WantedPayload,
)
from latermq_broker.store.records.lite_records import LITE_EXPIRED, LitePayload
from latermq_broker.store.records.message_records import QUEUE_UNSET
from latermq_broker.store.records.record import RecordType

Menders = dict[RecordType, Callable[[Any, Stamp], Any]]
"""Each makes the state such that the payload can be applied; what of it can, or None."""

LOST_TOPIC_NAME: Final = "lost-topic-"  # and its id: of a topic whose name is lost


class CatalogMender:
    """CONFIG, OFFSET, RESET, WANTED, LITE; and what others need of the catalog."""

    def __init__(self, state: EngineState, catalog: CatalogApplier, lost: LostCatalog) -> None:
        self._state = state
        self._catalog = catalog
        self._lost = lost
        self._believed: set[int] = set()  # topics made by what damaged records tell

    def menders(self) -> Menders:
        return {
            RecordType.CONFIG: self.config,
            RecordType.RESET: self.reset,
            RecordType.WANTED: self.wanted,
            RecordType.LITE: self.lite,
        }

    def config(self, config: ConfigPayload, at: Stamp) -> ConfigPayload:
        """Free a name that stands for another id: how that one was deleted is lost."""
        catalog = self._state.catalog
        if config.operation != CONFIG_PUT:
            return config
        if config.kind == CONFIG_GROUP:
            name = decode_group(config.body).name
            group = catalog.group(name)
            if group is not None and group.id != config.id:
                self._delete(config, group.id, at)
            known = catalog.group_by_id(config.id)
            if known is not None and known.name != name:
                catalog.remove_group(config.id)
            return config
        name = decode_topic(config.body).name
        topic = catalog.topic(name)
        if topic is not None and topic.id in self._believed and topic.id != config.id:
            catalog.remove_topic(topic.id)  # by a name that may never have been its own
            catalog.put_topic(replace(topic, name=f"{LOST_TOPIC_NAME}{topic.id}"))
        elif topic is not None and topic.id != config.id:
            self._delete(config, topic.id, at)
        placeholder = catalog.topic_by_id(config.id)
        if placeholder is not None and placeholder.name != name:
            catalog.remove_topic(config.id)
        return config

    def _delete(self, config: ConfigPayload, id: int, at: Stamp) -> None:
        deletion = config._replace(operation=CONFIG_DELETE, id=id, body=b"")
        self._catalog.config(deletion, at)

    def offset(self, offset: OffsetPayload, at: Stamp) -> OffsetPayload | None:
        if not self._exists(offset.group_id, offset.topic_id, offset.queue_id, at):
            return None
        reach(self._state, offset.topic_id, offset.queue_id, offset.offset, at.store_ms)
        return offset

    def reset(self, reset: ResetPayload, at: Stamp) -> ResetPayload | None:
        last_queue_id = max(len(reset.offsets) - 1, 0)
        if not self._exists(reset.group_id, reset.topic_id, last_queue_id, at):
            return None
        for queue_id, offset in enumerate(reset.offsets):
            reach(self._state, reset.topic_id, queue_id, offset, at.store_ms)
        return reset

    def wanted(self, wanted: WantedPayload, at: Stamp) -> WantedPayload | None:
        return wanted if self._exists(wanted.group_id, wanted.topic_id, 0, at) else None

    def lite(self, lite: LitePayload, at: Stamp) -> LitePayload | None:
        del at
        expired = lite.kind == LITE_EXPIRED
        return lite if expired or self.has_group(lite.group_id) else None

    def _exists(self, group_id: int, topic_id: int, queue_id: int, at: Stamp) -> bool:
        """Tell whether the group is known; its topic is then, too."""
        if not self.has_group(group_id):
            return False
        self.ensure_topic(topic_id, queue_id, at)
        return True

    def has_group(self, group_id: int) -> bool:
        """Tell whether the group is known, or a damaged record tells of it."""
        catalog = self._state.catalog
        if catalog.group_by_id(group_id) is not None:
            return True
        lost = self._lost.groups.get(group_id)
        if lost is None or catalog.group(lost.name) is not None:
            return False
        catalog.put_group(replace(lost, id=group_id))
        return True

    def ensure_topic(self, topic_id: int, queue_id: int, at: Stamp) -> None:
        """Make sure of such a topic with such a queue: the record that made it may be lost.

        What a damaged record still tells of it is believed, if nobody else has the name.
        """
        catalog = self._state.catalog
        topic = catalog.topic_by_id(topic_id)
        queue_count = queue_id + 1 if queue_id != QUEUE_UNSET else 1
        if topic is None:
            lost = self._lost.topics.get(topic_id)
            if lost is not None and catalog.topic(lost.name) is None:
                queue_count = max(queue_count, lost.queue_count)
                catalog.put_topic(replace(lost, id=topic_id, queue_count=queue_count))
                self._believed.add(topic_id)
                return
            catalog.put_topic(_made_up(topic_id, f"{LOST_TOPIC_NAME}{topic_id}", queue_count, at))
        elif topic.queue_count < queue_count:
            catalog.put_topic(replace(topic, queue_count=queue_count))

    def ensure_letters(self, dlq_topic_id: int, group_id: int, at: Stamp) -> None:
        """Make the dead-letter topic of that name if it is not there: its name is its group's."""
        catalog = self._state.catalog
        group = catalog.group_by_id(group_id)
        if catalog.topic_by_id(dlq_topic_id) is not None:
            return
        if group is not None and catalog.topic(group.dead_letter_topic) is None:
            catalog.put_topic(_made_up(dlq_topic_id, group.dead_letter_topic, 1, at))
        else:
            self.ensure_topic(dlq_topic_id, 0, at)


def _made_up(topic_id: int, name: str, queue_count: int, at: Stamp) -> Topic:
    return Topic(
        id=topic_id,
        name=name,
        type=TopicType.MIXED,
        queue_count=queue_count,
        created_ms=at.store_ms,
        epoch=f"{topic_id:016x}",
    )
