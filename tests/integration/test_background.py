"""Work that lasts, at a real broker: bounds per user, and calls that are answered beside it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bench.letters import GROUP, TOPIC, fill
from latermq import admin
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import broker_pb2, dead_letter_pb2, dead_letter_pb2_grpc
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

LETTERS = 2_000
CONFIG = """
[delivery]
receive_batch_max = 256
[server]
polling_ms_min = 20
transport = "{transport}"
[background]
running_per_user_max = 2
waiting_per_user_max = 2
"""


@pytest.fixture(scope="module", params=["lean", "grpcio"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("background")
    made = BrokerProcess(directory / "data", config=CONFIG.format(transport=request.param))
    with made.start():
        fill(made, LETTERS)
        yield made


def shown(broker: BrokerProcess) -> broker_pb2.BrokerBackground:
    with admin.connect(broker.endpoint) as asked:
        answer = asked.call(asked.brokers.GetBroker, broker_pb2.GetBrokerRequest())
        background: broker_pb2.BrokerBackground = answer.broker.background
        return background


def redrive(**fields: object) -> dead_letter_pb2.RedriveDeadLettersRequest:
    return dead_letter_pb2.RedriveDeadLettersRequest(group=GROUP, **fields)  # type: ignore[arg-type]


def test_a_user_has_so_many_lasting_calls_and_the_next_is_refused(broker: BrokerProcess) -> None:
    with grpc.insecure_channel(broker.endpoint) as channel:
        stub = dead_letter_pb2_grpc.DeadLettersStub(channel)
        slow = [stub.RedriveDeadLetters(redrive(rate_per_second=1)) for _ in range(4)]
        deadline = time.monotonic() + patient(20)
        while shown(broker).open < 4:  # GetBroker is answered at once: it takes no place
            assert time.monotonic() < deadline
        (refused,) = stub.RedriveDeadLetters(redrive(dry_run=True))
        assert refused.status.code == Code.TOO_MANY_REQUESTS
        assert "4 lasting calls of one user are open" in refused.status.message
        assert "background.waiting_per_user_max" in refused.status.message
        listed = stub.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest(group=GROUP))
        assert listed.status.code == Code.TOO_MANY_REQUESTS
        assert shown(broker).refused == 2
        for call in slow:
            call.cancel()
        while shown(broker).open:
            assert time.monotonic() < deadline
        *_, last = stub.RedriveDeadLetters(redrive(dry_run=True))
        assert last.done
        assert last.status.code == Code.OK
    kinds = {each.kind: each.used_ms for each in shown(broker).kinds}
    assert kinds["RedriveDeadLetters"] > 0


def test_sends_are_answered_beside_a_user_who_does_all_there_is(broker: BrokerProcess) -> None:
    stop, ended = threading.Event(), threading.Event()
    scanned: list[int] = []

    def job() -> None:
        with grpc.insecure_channel(broker.endpoint) as channel:
            stub = dead_letter_pb2_grpc.DeadLettersStub(channel)
            while not stop.is_set():
                *_, last = stub.DropDeadLetters(
                    dead_letter_pb2.DropDeadLettersRequest(group=GROUP, dry_run=True)
                )
                assert last.status.code == Code.OK
                scanned.append(last.scanned_count)
        ended.set()

    jobs = [threading.Thread(target=job) for _ in range(4)]
    for thread in jobs:
        thread.start()
    took: list[float] = []
    with WireClient(broker.endpoint) as wire:
        for _ in range(100):
            began_s = time.monotonic()
            require_ok(wire.send(wire_requests.message(TOPIC, b"beside")))
            took.append(time.monotonic() - began_s)
    stop.set()
    for thread in jobs:
        thread.join(patient(60))
    assert ended.is_set()
    assert all(count >= LETTERS - 100 for count in scanned)  # a few were redriven
    assert sorted(took)[50] < patient(0.1)
