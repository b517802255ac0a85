"""What senders do who send again: messages with dedup ids, of each one in a window is stored."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.catalog.shares import count_up, key_of
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing, Sent
from latermq_broker.errors import StoreFullError, TooManyRequestsError
from latermq_broker.store.records.dedup_records import (
    dedup_bytes,
    dedup_key,
    dedup_made_by,
    dedup_rows,
)
from property.client_rules import ClientRules
from support.engine_bench import DEDUP, KEYS, LOST, TOPIC
from support.group_model import Where

IDS = ("", "a", "b", "c", "order-17", "é")
SHOP = User(access_key="u", secret="the-secret-of-u")  # has room for two of them
USERS = st.sampled_from([None, None, SHOP])


@dataclass
class Once:
    """The message that has a dedup id, as its sender was told of it."""

    message_id: str
    sent: Sent
    until_ms: int
    bytes: int
    made_by: str


class DedupRules(ClientRules):
    def __init__(self) -> None:
        self.once: dict[str, Once] = {}  # by dedup id
        self.window_ms = DEDUP.window_ms
        super().__init__()

    @rule(
        sorts=st.lists(
            st.tuples(st.sampled_from(IDS), st.sampled_from(KEYS)), min_size=1, max_size=4
        ),
        wait_ms=st.sampled_from([0, 0, 700]),
        user=USERS,
    )
    def send_again(self, sorts: list[tuple[str, str]], wait_ms: int, user: User | None) -> None:
        """Some of the ids are known, some stand in the send twice."""
        due_ms = self.wall_ms + wait_ms if wait_ms else 0
        self.once = {name: one for name, one in self.once.items() if one.until_ms > self.now_ms}
        new = self.new_of(sorts, due_ms)
        messages = [
            new.get(index, Outgoing(TOPIC, b"d", b"d", "twice", dedup_id=name))
            for index, (name, _) in enumerate(sorts)
        ]
        if self.refused_again(messages, list(new.values()), user):
            return
        results = self.engine.send(messages, self.now_ms, user)
        for index, ((name, _), sent) in enumerate(zip(sorts, results, strict=True)):
            if index in new:
                assert sent.first_id == ""
                message = self.known(new[index], Where.WAITS if due_ms else Where.ENTERS)
                message.due_ms, message.pending_id = due_ms, sent.pending_id
                message.shown_id = sent.pending_id
                if name:
                    self.once[name] = Once(
                        new[index].message_id, sent, self.now_ms + self.window_ms,
                        self.size(new[index], user), key_of(user),
                    )  # fmt: skip
            else:
                once = self.once[name]
                assert sent.first_id == once.message_id
                told = sent._replace(first_id="", queue_id=once.sent.queue_id)
                assert told == once.sent, "not told what the first sender was"

    @rule(window_ms=st.sampled_from([UNSET, 900, 20_000]))
    def ids_count_for_another_time(self, window_ms: int) -> None:
        """A setting of the topic; ids that were given keep the window that they have."""
        times = TopicTimes(dedup_window_ms=window_ms)
        self.engine.topics.alter(TOPIC, None, 0, self.now_ms, times)
        self.engine.write()
        self.window_ms = DEDUP.window_ms if window_ms == UNSET else window_ms

    def new_of(self, sorts: list[tuple[str, str]], due_ms: int) -> dict[int, Outgoing]:
        """What of a send is to be stored, by its place there."""
        places: dict[str, int] = {}
        for index, (name, _) in enumerate(sorts):
            if name not in self.once:
                places.setdefault(name or str(index), index)
        indices = sorted(places.values())
        keys = [("a", "" if due_ms else sorts[index][1]) for index in indices]
        made = self.outgoing(keys, due_ms=due_ms)
        return {
            index: one._replace(dedup_id=sorts[index][0])
            for index, one in zip(indices, made, strict=True)
        }

    def refused_again(
        self, messages: list[Outgoing], new: list[Outgoing], user: User | None
    ) -> bool:
        """I2: no room for the ids, or for the messages; nothing of them is there."""
        needed = sum(self.size(one, user) for one in new if one.dedup_id)
        room = DEDUP.bytes_max - sum(one.bytes for one in self.once.values())
        if user is not None:  # a twentieth is for admins, and half of it for all but him
            his = sum(one.bytes for one in self.once.values() if one.made_by == user.access_key)
            room = min(room - DEDUP.bytes_max // 20, DEDUP.bytes_max // 2 - his)
        error: type[Exception]
        if needed > max(room, 0):
            error = TooManyRequestsError
        elif new and self.engine.store.disk.full:
            error = StoreFullError
        else:
            return False
        before = self.engine.store.log.end
        with pytest.raises(error):
            self.engine.send(messages, self.now_ms, user)
        assert self.engine.store.log.end == before, "I2"
        return True

    def size(self, message: Outgoing, user: User | None) -> int:
        key = dedup_key(0, message.dedup_id)
        return dedup_bytes(key, message.message_id.encode(), key_of(user))

    def look(self) -> None:
        super().look()
        ends = {one.until_ms for one in self.once.values()}
        self.model.windows = {until_ms for until_ms in ends if until_ms > self.now_ms}
        self.remembers(self.engine)

    def remembers(self, engine: Engine) -> None:
        """Each id whose window is not over, and what has it; and no other (I1, I8)."""
        topic = engine.catalog.topic(TOPIC)
        assert topic is not None
        ids = engine._state.dedup
        assert ids.bytes == len(ids.snapshot())
        of_users: dict[str, int] = {}
        for key, value in dedup_rows(ids.snapshot()):
            count_up(of_users, dedup_made_by(value, 0), len(key) + len(value))
        assert ids.of_users == of_users, "a share is not what is there of a user's"
        for name in (*IDS, LOST):
            found = ids.get(dedup_key(topic.id, name), self.now_ms)
            once = self.once.get(name)
            if once is None or once.until_ms <= self.now_ms:
                assert found is None, f"{name} has no window, or it is over"
            else:
                assert found is not None, f"{name} is forgotten"
                assert found.message_id == once.message_id.encode()
                assert found.made_by == once.made_by
                assert (found.position, found.until_ms) == (once.sent.position, once.until_ms)

    def replayed(self, engine: Engine) -> None:
        super().replayed(engine)
        self.remembers(engine)
