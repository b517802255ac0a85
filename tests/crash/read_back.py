"""What the clients of `crash.load` were promised, and how it is read back in the end."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from crash.load import ATTEMPTS_MAX, AUDIT, FAR_MS, LADDER_MS, PUSH_CLIENT, TOPIC, WORKERS
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import group_pb2, pending_pb2, topic_pb2
from support import anew_client
from support.anew_client import Anew
from support.ledger import Delivery, Ledger
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok

DRAIN_S_MAX: Final = patient(60)
ALWAYS: Final = 1 << 62


class Promises:
    """Those of one log, whoever serves it."""

    def __init__(self, rng: random.Random, retention_ms: int) -> None:
        attempts_max = {WORKERS: ATTEMPTS_MAX, AUDIT: 1 << 30}
        self.ledger = Ledger(attempts_max, retention_ms=retention_ms)
        self.anew = Anew(rng, retention_ms)
        self.topics: set[str] = set()
        self.complaints: list[str] = []

    def crashed(self) -> None:
        """Who served is dead, or its connections were dropped."""
        self.ledger.crashed()
        self.anew.ledger.crashed()

    def check(self) -> None:
        """Raises AssertionError with every promise broken so far."""
        broken = [*self.complaints, *self.ledger.violations, *self.anew.ledger.violations]
        summaries = [self.ledger.summary(), self.anew.ledger.summary()]
        assert not broken, "\n".join([*summaries, *broken])


def make_names(endpoint: str) -> None:
    """Make the topic and the groups that the clients use."""
    with WireClient(endpoint) as wire:
        wire.create_topic(TOPIC)
        wire.create_group(WORKERS, ATTEMPTS_MAX, LADDER_MS)
        wire.create_group(AUDIT, 0)
        wire.create_group(anew_client.GROUP, anew_client.ATTEMPTS_MAX, anew_client.LADDER_MS)


def read_back(promises: Promises, endpoint: str) -> None:
    """Receive everything there is, for every group, and compare."""
    ledger = promises.ledger
    soon_ms = now_ms() + FAR_MS // 2
    with WireClient(endpoint, PUSH_CLIENT) as push:
        push.announce_push_consumer(TOPIC, WORKERS)
        assert push.leave(WORKERS).code == definition_pb2.Code.OK
    for message_id in ledger.messages:
        ledger.freed(WORKERS, message_id)
    with WireClient(endpoint) as wire:
        near_ms = max(sent.due_ms for sent in ledger.messages.values() if sent.due_ms <= soon_ms)
        drain(wire, ledger, WORKERS, lambda: now_ms() > near_ms and not left_in(wire, WORKERS))
        read_dead_letters(wire, ledger)
        read_back_anew(wire, promises.anew.ledger)
        gone = old_enough(ledger)
        ledger.check_drained(WORKERS, soon_ms, gone)
        drain(wire, ledger, AUDIT, lambda: not left_in(wire, AUDIT))
        ledger.check_drained(AUDIT, soon_ms, gone | old_enough(ledger))
        waiting = list(still_delayed(wire))
        assert len(waiting) == len(set(waiting))
        assert set(waiting) >= set(ledger.stored(ALWAYS)) - set(ledger.stored(soon_ms))
        assert set(waiting) <= {i for i, sent in ledger.messages.items() if sent.due_ms > soon_ms}
        listed = wire.call(wire.topics.ListTopics, topic_pb2.ListTopicsRequest(page_size=1000))
        assert promises.topics <= {topic.name for topic in listed.topics}


def read_back_anew(wire: WireClient, ledger: Ledger) -> None:
    """The same for what was made anew: by now it is due."""
    topic, group = anew_client.TOPIC, anew_client.GROUP
    described = wire.call(wire.topics.GetTopic, topic_pb2.GetTopicRequest(name=topic))
    ledger.found_topic(described.topic.epoch)
    wire.create_group(group, anew_client.ATTEMPTS_MAX, anew_client.LADDER_MS)
    gone = old_enough(ledger)
    ledger.receiving(group, None, now_ms())
    drain(wire, ledger, group, lambda: not left_in(wire, group, topic), topic)
    read_dead_letters(wire, ledger, group, topic)
    ledger.check_drained(group, now_ms(), gone | old_enough(ledger))


def old_enough(ledger: Ledger) -> frozenset[str]:
    """What retention may have taken before somebody received it."""
    latest_ms = now_ms() - ledger.retention_ms
    return frozenset(
        message_id
        for message_id, message in ledger.messages.items()
        if ledger.retention_ms and max(message.sent_ms, message.due_ms) <= latest_ms
    )


def drain(
    wire: WireClient, ledger: Ledger, group: str, done: Callable[[], bool], topic: str = TOPIC
) -> None:
    until = time.monotonic() + DRAIN_S_MAX
    while time.monotonic() < until:
        asked_ms = now_ms()
        got = wire.receive(topic, group, count_max=256, wait_ms=300, invisible_ms=60_000)
        for message in got.messages:
            system = message.system_properties
            ledger.delivered(
                group,
                Delivery(
                    system.message_id,
                    message.body,
                    system.delivery_attempt,
                    system.receipt_handle,
                    asked_ms,
                    got.broker_ms,
                    got.at_ms,
                    60_000,
                ),
            )
            ledger.acking(group, system.message_id)
        if got.messages:
            handles = [message.system_properties.receipt_handle for message in got.messages]
            require_ok(wire.ack(topic, group, *handles))
            for message in got.messages:
                system = message.system_properties
                ledger.acked(
                    group, system.message_id, system.receipt_handle, accepted=True, at_ms=0
                )
        elif done():
            return
    raise AssertionError(f"{left_in(wire, group, topic)} messages of {group} do not come")


def left_in(wire: WireClient, group: str, of: str = TOPIC) -> int:
    """Ready, leased and waiting, by the broker's own account."""
    answer = wire.call(wire.groups.GetGroup, group_pb2.GetGroupRequest(name=group))
    require_ok(answer)
    return sum(
        topic.ready_count + topic.in_flight_count + topic.backoff_count
        for topic in answer.group.topics
        if topic.topic == of
    )


def read_dead_letters(
    wire: WireClient, ledger: Ledger, group: str = WORKERS, topic: str = TOPIC
) -> None:
    answer = wire.call(wire.groups.GetGroup, group_pb2.GetGroupRequest(name=group))
    count = answer.group.dead_letter_count
    for letter in wire.take(f"%DLQ%{group}", "undertaker", count, DRAIN_S_MAX):
        origin = letter.system_properties.dead_letter_queue
        assert origin.topic == topic
        ledger.died(group, origin.message_id, letter.body)


def still_delayed(wire: WireClient) -> Iterator[str]:
    """Message ids still waiting for their time."""
    token = ""
    while True:
        request = pending_pb2.ListPendingRequest(
            filter=pending_pb2.PendingFilter(topic=TOPIC, kind=pending_pb2.PendingKind.DELAYED),
            page_size=1000,
            page_token=token,
        )
        answer = wire.call(wire.pending.ListPending, request)
        require_ok(answer)
        for waiting in answer.messages:
            yield waiting.message_id
        token = answer.next_page_token
        if not token:
            return
