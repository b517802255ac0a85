"""The broker asks its clients to reconnect: Node.js opens a stream anew, Python passes it by."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign
from interop.client_cases import CONFIG, Line
from interop.official import OfficialClient, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1.broker_pb2 import ReconnectClientsRequest
from latermq_proto.latermq.v1.client_pb2 import ListClientsRequest
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

INSTALL_TIMEOUT_S = patient(90.0)
CLIENTS = 2  # a producer and a push consumer
ROUNDS = 3
BACK_S_MAX = patient(10.0)
ARRIVES_S = 0.2


@pytest.fixture(params=["python", "node"])
def official(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OfficialClient]:
    if request.param == "python":
        with OfficialClient(tmp_path / "python") as client:
            yield client
        return
    try:
        command = foreign.command("node", INSTALL_TIMEOUT_S)
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    with OfficialClient(tmp_path / "node", command) as client:
        yield client


def ask_all(endpoint: str) -> None:
    """Until every client was in reach at once: those that reopen do so on their own time."""
    until = time.monotonic() + BACK_S_MAX
    request = ReconnectClientsRequest(all=True)
    with WireClient(endpoint) as wire:
        while True:
            answer = wire.call(wire.brokers.ReconnectClients, request)
            assert answer.status.code == definition_pb2.Code.OK
            if (answer.told, answer.out_of_reach) == (CLIENTS, 0):
                return
            assert time.monotonic() < until, answer
            time.sleep(0.1)


def wait_reached(endpoint: str) -> None:
    """Until every client has opened a stream anew."""
    until = time.monotonic() + BACK_S_MAX
    with WireClient(endpoint) as wire:
        while True:
            clients = wire.call(wire.clients.ListClients, ListClientsRequest()).clients
            if sum(each.reachable for each in clients) == CLIENTS:
                return
            assert time.monotonic() < until, clients
            time.sleep(0.1)


def test_clients_go_on_when_asked_to_reconnect(
    official: OfficialClient, tmp_path: Path, name: str
) -> None:
    """By an operator, again and again; then by a broker that stops and comes back."""
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        line = Line(official, broker.start().endpoint, name)
        consumer = line.push()
        line.send("0")
        official.wait_consumed(consumer, 1)
        for number in range(1, ROUNDS + 1):
            ask_all(broker.endpoint)
            line.send(str(number))
            official.wait_consumed(consumer, number + 1)
        wait_reached(broker.endpoint)  # or there might be nobody to tell
        ended = broker.terminate()
        assert ended.code == 0, ended.stderr
        assert "clients told to reconnect" in broker.log_path.read_text(encoding="utf-8")
        broker.start()
        line.send_at_last("after")
        consumed = official.wait_consumed(consumer, ROUNDS + 2)
        bodies = [text(one) for one in consumed]
        assert bodies == [*map(str, range(ROUNDS + 1)), "after"]
        assert {one["attempt"] for one in consumed} == {1}
        official.call("shutdown", name=consumer)


def test_a_broker_that_dies_right_after_it_asked_ends_no_client(
    official: OfficialClient, tmp_path: Path, name: str
) -> None:
    """Node.js reads the command, stops listening to that stream, then its connection is lost."""
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        line = Line(official, broker.start().endpoint, name)
        line.send("0")
        with official.suspended(), WireClient(broker.endpoint) as wire:
            answer = wire.call(wire.brokers.ReconnectClients, ReconnectClientsRequest(all=True))
            assert answer.told == 1
            time.sleep(ARRIVES_S)
            broker.kill()
        broker.start()
        line.send_at_last("1")
