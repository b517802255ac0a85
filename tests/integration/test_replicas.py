"""Two brokers and a replicated log: the owner dies, is stopped, or the engine does not answer."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import grpc
import pytest

from latermq_broker.runtime import CLEAN, STORE_FAILED
from latermq_broker.store.directory import LOG_NAME
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2_grpc
from latermq_proto.latermq.v1 import pending_pb2
from support import retention_story, wire_requests
from support.machine import patient
from support.replica_process import EngineProcess, ReplicaProcess
from support.wire_client import WireClient, now_ms, require_ok

TOPIC = "orders"
ATTEMPT_S = 2.0
HOUR_MS = 3_600_000


class Sent(NamedTuple):
    """A message that was acknowledged, by whom and when."""

    message_id: str
    endpoint: str
    at_s: float


class Load(threading.Thread):
    """Sends one message after another to whichever broker takes it."""

    def __init__(self, *brokers: ReplicaProcess) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[Sent] = []
        self._brokers = brokers
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        threads = [threading.Thread(target=self._to, args=(broker,)) for broker in self._brokers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _to(self, broker: ReplicaProcess) -> None:
        while not self._over.is_set():
            if broker.endpoint.endswith(":0"):
                time.sleep(0.02)
                continue
            with grpc.insecure_channel(broker.endpoint, wire_requests.CHANNEL_OPTIONS) as channel:
                stub = service_pb2_grpc.MessagingServiceStub(channel)
                while not self._over.is_set() and self._send(stub, broker.endpoint):
                    pass
            time.sleep(0.02)

    def _send(self, stub: service_pb2_grpc.MessagingServiceStub, endpoint: str) -> bool:
        message = wire_requests.message(TOPIC, b"load")
        metadata = wire_requests.metadata("load@1@0@test")
        try:
            answer = stub.SendMessage(
                wire_requests.send([message]), timeout=ATTEMPT_S, metadata=metadata
            )
        except grpc.RpcError:
            return False
        if answer.status.code == definition_pb2.Code.OK:
            message_id = message.system_properties.message_id
            self.acknowledged.append(Sent(message_id, endpoint, time.monotonic()))
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


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with EngineProcess() as engine:
        yield engine


def drained(broker: ReplicaProcess) -> list[str]:
    """The ids of all messages, as a consumer gets them."""
    ids: list[str] = []
    with WireClient(broker.endpoint) as client:
        while messages := client.receive(TOPIC, "billing", wait_ms=1_000).messages:
            handles = [message.system_properties.receipt_handle for message in messages]
            require_ok(client.ack(TOPIC, "billing", *handles))
            ids += [message.system_properties.message_id for message in messages]
    return ids


def log_bytes(directory: Path) -> bytes:
    """The log's files, one after another, without the zeros behind its end."""
    files = sorted((directory / LOG_NAME).glob("*.seg"))
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


def test_a_killed_owner_is_replaced_and_nothing_is_lost(
    tmp_path: Path, engine: EngineProcess
) -> None:
    with ReplicaProcess(tmp_path / "a", engine) as a, ReplicaProcess(tmp_path / "b", engine) as b:
        a.start()
        b.spawn()
        b.wait_log("following")
        with Load(a, b) as load:
            load.wait_more(20, a.endpoint)
            a.kill()
            b.wait_ready()
            load.wait_more(20, b.endpoint)
            a.spawn()  # a standby now, with a tail that may have to be cut off
            a.wait_log("following")
            load.wait_more(20, b.endpoint)
            b.kill()
            a.wait_ready()
            load.wait_more(20, a.endpoint)
        acknowledged = [sent.message_id for sent in load.acknowledged]
        received = drained(a)
        assert set(acknowledged) <= set(received)
        assert len(received) == len(set(received))
        with ReplicaProcess(tmp_path / "c", engine) as c:  # from the engine alone
            c.spawn()
            c.wait_log("following")
            assert a.terminate().code == CLEAN
            c.wait_ready()
            assert drained(c) == []  # what was acknowledged by consumers does not come again
            c.kill()
        whole = log_bytes(tmp_path / "c")
        copy = log_bytes(tmp_path / "a")
        assert len(copy) > 10_000
        assert whole.startswith(copy)


def test_an_owner_that_was_stopped_ends_when_it_goes_on(
    tmp_path: Path, engine: EngineProcess
) -> None:
    with ReplicaProcess(tmp_path / "a", engine) as a, ReplicaProcess(tmp_path / "b", engine) as b:
        a.start()
        b.spawn()
        b.wait_log("following")
        with Load(a, b) as load:
            load.wait_more(20, a.endpoint)
            a.pause()
            b.wait_ready()
            load.wait_more(20, b.endpoint)
            a.go_on()
            ended = a.wait_end()
            load.wait_more(20, b.endpoint)
        assert ended.code == STORE_FAILED
        assert "another broker has taken over this shard" in ended.stderr
        first_s = min(sent.at_s for sent in load.acknowledged if sent.endpoint == b.endpoint)
        late = [sent for sent in load.acknowledged if sent.endpoint != b.endpoint]
        assert max(sent.at_s for sent in late) < first_s
        assert {sent.message_id for sent in load.acknowledged} <= set(drained(b))


def test_without_an_engine_nobody_serves_and_with_it_the_owner_goes_on(
    tmp_path: Path, engine: EngineProcess
) -> None:
    with ReplicaProcess(tmp_path / "a", engine) as a, ReplicaProcess(tmp_path / "b", engine) as b:
        a.start()
        b.spawn()
        b.wait_log("following")
        with Load(a) as load:
            load.wait_more(20, a.endpoint)
            engine.pause()
            a.wait_log("does not serve")
            before = load.count(a.endpoint)
            a.wait_log("the engine did not take a batch")  # later than a standby's patience ends
            assert load.count(a.endpoint) == before
            engine.go_on()
            load.wait_more(20, a.endpoint)
        assert not b.serves
        assert {sent.message_id for sent in load.acknowledged} <= set(drained(a))


def test_a_log_whose_front_was_dropped_fills_an_empty_directory(
    tmp_path: Path, engine: EngineProcess
) -> None:
    story = retention_story.config()
    with ReplicaProcess(tmp_path / "a", engine, story) as a:
        a.start()
        with WireClient(a.endpoint) as client:
            late = wire_requests.message(TOPIC, b"late", deliver_at_ms=now_ms() + HOUR_MS)
            require_ok(client.send(late))
            filler = [wire_requests.message("filler", bytes(4_096))] * 60
            while "the engine may forget" not in a.log_path.read_text(encoding="utf-8"):
                require_ok(client.send(*filler))
                time.sleep(0.1)
        with ReplicaProcess(tmp_path / "b", engine, story) as b:
            b.spawn()
            b.wait_log("following")
            a.kill()
            b.wait_ready()
            with WireClient(b.endpoint) as client:
                request = pending_pb2.ListPendingRequest()
                waiting = client.call(client.pending.ListPending, request).messages
            assert [each.message_id for each in waiting] == [late.system_properties.message_id]
        assert int(min((tmp_path / "b" / LOG_NAME).iterdir()).stem.split("-")[0]) > 0
