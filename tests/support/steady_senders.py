"""Senders that notice who serves: each answer is written down, with its broker and its time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, Self

import grpc

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2_grpc
from support import wire_requests
from support.machine import patient
from support.wire_client import WireClient, require_ok

TOPIC: Final = "orders"
ATTEMPT_S: Final = 2.0
PACE_S: Final = 0.005


class Sent(NamedTuple):
    """A message that was acknowledged, by whom and when.

    The broker answered between the two times; a thread that is held up tells the later one late.
    """

    message_id: str
    endpoint: str
    began_s: float
    at_s: float


class Story(NamedTuple):
    """What happened to one log while messages were sent to it."""

    silence_s: float  # the longest time from one OK to the next
    new_owners: int
    late: int  # OKs of an owner behind the first of the next one
    moves_s: tuple[float, ...]  # for each new owner, from the last OK of another to its first


def story_of(acknowledged: list[Sent]) -> Story:
    sent = sorted(acknowledged, key=lambda each: each.at_s)
    owners, late, moves_s = [sent[0].endpoint], 0, list[float]()
    for before, each in pairwise(sent):
        if each.endpoint not in owners:
            owners.append(each.endpoint)
            moves_s.append(each.at_s - before.at_s)
        late += each.endpoint != owners[-1]
    silence_s = max(b.at_s - a.at_s for a, b in pairwise(sent))
    return Story(silence_s, len(owners) - 1, late, tuple(moves_s))


class HasEndpoint(Protocol):
    """A broker that may serve at some time: `host:port`, and port 0 until it is known."""

    @property
    def endpoint(self) -> str: ...


class SteadySenders(threading.Thread):
    """Send one message after another to whichever broker takes it."""

    def __init__(self, *brokers: HasEndpoint) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[Sent] = []
        self._brokers = brokers
        self._over = threading.Event()
        self._held = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.is_alive():
            self.join()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin no send meanwhile; one that is under way goes on."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def run(self) -> None:
        threads = [threading.Thread(target=self._to, args=(broker,)) for broker in self._brokers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _to(self, broker: HasEndpoint) -> None:
        while not self._over.is_set():
            if self._held or broker.endpoint.endswith(":0"):
                time.sleep(0.02)
                continue
            with grpc.insecure_channel(broker.endpoint, wire_requests.CHANNEL_OPTIONS) as channel:
                stub = service_pb2_grpc.MessagingServiceStub(channel)
                while not self._at_rest and self._send(stub, broker.endpoint):
                    time.sleep(PACE_S)
            time.sleep(0.02)

    @property
    def _at_rest(self) -> bool:
        return self._held or self._over.is_set()

    def _send(self, stub: service_pb2_grpc.MessagingServiceStub, endpoint: str) -> bool:
        message = wire_requests.message(TOPIC, b"load")
        metadata = wire_requests.metadata("load@1@0@test")
        began_s = time.monotonic()
        try:
            answer = stub.SendMessage(
                wire_requests.send([message]), timeout=ATTEMPT_S, metadata=metadata
            )
        except grpc.RpcError:
            return False
        if answer.status.code == definition_pb2.Code.OK:
            message_id = message.system_properties.message_id
            self.acknowledged.append(Sent(message_id, endpoint, began_s, time.monotonic()))
        return True

    def wait_more(self, count: int, endpoint: str) -> None:
        """Until so many more were acknowledged there."""
        wanted = self.count(endpoint) + count
        until_s = time.monotonic() + patient(60)
        while self.count(endpoint) < wanted:
            assert time.monotonic() < until_s, f"{endpoint} takes nothing"
            time.sleep(0.02)

    def count(self, endpoint: str) -> int:
        return sum(sent.endpoint == endpoint for sent in list(self.acknowledged))


def drained(endpoint: str) -> list[str]:
    """Receive and acknowledge all there is; return the ids."""
    ids: list[str] = []
    with WireClient(endpoint) as client:
        while messages := client.receive(TOPIC, "billing", wait_ms=1_000).messages:
            handles = [message.system_properties.receipt_handle for message in messages]
            require_ok(client.ack(TOPIC, "billing", *handles))
            ids += [message.system_properties.message_id for message in messages]
    return ids
