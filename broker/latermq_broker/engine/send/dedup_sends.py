"""Sends of messages that have an id of their sender's: in a window, one of each id is stored.

`state.dedup` tells what was stored with an id. A message whose id is known there, or stood before
in the same send, is not stored; its sender is told where the first one is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from latermq_broker.catalog.access import User
from latermq_broker.catalog.shares import Shares, key_of, maker
from latermq_broker.engine.state.model import Outgoing, Topic
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
        self._shares = Shares(state.config.auth)
        self._window_ms = state.config.dedup.window_ms

    def sort_out(
        self, messages: Sequence[Outgoing], now_ms: int, user: User | None
    ) -> tuple[list[Outgoing], list[Fate]]:
        """Tell which messages of one topic are to be stored, and what becomes of each.

        Raises TooManyRequestsError: their ids find no room, or none in the user's share.
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
                needed += dedup_bytes(key, message.message_id.encode(), maker(user))
            fates.append(Fate(len(fresh)))
            fresh.append(message)
        if needed:
            self._check_room(needed, now_ms, user)
        return fresh, fates

    def ids(self, messages: Sequence[Outgoing], topic_id: int, user: User | None) -> list[DedupId]:
        """List the ids of messages that are to be stored."""
        made_by = maker(user)
        return [
            DedupId(
                index, dedup_key(topic_id, message.dedup_id), message.message_id.encode(), made_by
            )
            for index, message in enumerate(messages)
            if message.dedup_id
        ]

    def until_ms(self, topic: Topic, now_ms: int) -> int:
        """Tell until when ids of the topic count that are given now."""
        return now_ms + topic.dedup_window(self._window_ms)

    def _check_room(self, needed: int, now_ms: int, user: User | None) -> None:
        ids = self._ids
        while True:
            try:
                self._shares.check(
                    user, "bytes of dedup ids", "dedup.bytes_max", ids.bytes_max, ids.bytes,
                    ids.of_users.get(key_of(user), 0), more=needed,
                )  # fmt: skip
            except TooManyRequestsError:
                before = ids.bytes
                ids.forget(now_ms)
                if ids.bytes == before:
                    raise
            else:
                return
