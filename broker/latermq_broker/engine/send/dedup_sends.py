"""Sends of messages that have an id of their sender's: in a window, one of each id is stored.

`state.dedup` tells what was stored with an id. A message whose id is known there, or stood before
in the same send, is not stored; its sender is told where the first one is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from latermq_broker.engine.state.model import Outgoing
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.store.records.dedup_records import (
    DedupId,
    DedupValue,
    dedup_bytes,
    dedup_key,
)


class Fate(NamedTuple):
    """What became of one message of a send."""

    place: int  # in what is stored; -1: a message stored before has its id
    first: DedupValue | None = None  # that message
    first_id: str = ""  # its message id, or that of the one before in the same send; "": it is new


class DedupSends:
    """Decides what of a send is stored, by the ids of its messages; writes nothing."""

    def __init__(self, state: EngineState) -> None:
        self._ids = state.dedup
        self._catalog = state.catalog
        self._window_ms = state.config.dedup.window_ms

    def sort_out(
        self, messages: Sequence[Outgoing], now_ms: int
    ) -> tuple[list[Outgoing], list[Fate]]:
        """Tell which messages of one topic are to be stored, and what becomes of each.

        Raises TooManyRequestsError: their ids find no room.
        """
        topic = self._catalog.topic(messages[0].topic)
        fresh: list[Outgoing] = []
        fates: list[Fate] = []
        mine: dict[str, int] = {}  # ids of this send → index in `fresh`
        needed = 0
        for message in messages:
            name = message.dedup_id
            if name in mine:
                index = mine[name]
                fates.append(Fate(index, None, fresh[index].message_id))
                continue
            if name:
                key = dedup_key(0 if topic is None else topic.id, name)
                first = None if topic is None else self._ids.get(key, now_ms)
                if first is not None:
                    fates.append(Fate(-1, first, first.message_id.decode()))
                    continue
                mine[name] = len(fresh)
                needed += dedup_bytes(key, message.message_id.encode())
            fates.append(Fate(len(fresh)))
            fresh.append(message)
        if needed:
            self._check_room(needed, now_ms)
        return fresh, fates

    def ids(self, messages: Sequence[Outgoing], topic_id: int) -> list[DedupId]:
        """List the ids of messages that are to be stored."""
        return [
            DedupId(index, dedup_key(topic_id, message.dedup_id), message.message_id.encode())
            for index, message in enumerate(messages)
            if message.dedup_id
        ]

    def until_ms(self, now_ms: int) -> int:
        """Tell until when ids count that are given now."""
        return now_ms + self._window_ms

    def _check_room(self, needed: int, now_ms: int) -> None:
        ids = self._ids
        while ids.bytes + needed > ids.bytes_max:
            before = ids.bytes
            ids.forget(now_ms)
            if ids.bytes == before:
                raise TooManyRequestsError(
                    f"{len(ids)} dedup ids of the last {self._window_ms} ms take {ids.bytes} of "
                    f"{ids.bytes_max} bytes (dedup.bytes_max): send again later; not stored"
                )
