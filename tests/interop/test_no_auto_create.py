"""With `--no-auto-create` and `--no-auto-create-groups` their owner alone makes topics, groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.conftest import CONFIG
from interop.official import OfficialClient, OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

Code = definition_pb2.Code


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    words = ("--no-auto-create", "--no-auto-create-groups")
    with BrokerProcess(room / "data", *words, config=CONFIG) as broker:
        yield broker.start()


def test_query_route_of_an_unknown_topic(
    official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str
) -> None:
    """TOPIC_NOT_FOUND; the official client keeps the code to its log and says "route"."""
    official.call("producer", name=name, endpoint=broker.endpoint, topics=[])
    with pytest.raises(OfficialError, match="route"):
        official.call("send", name=name, topic=name, text="never")
    logged = (official.log_dir / "logs/rocketmq_python/rocketmq_client.log").read_text()
    assert str(Code.TOPIC_NOT_FOUND) in logged
    assert wire.route(name).status.code == Code.TOPIC_NOT_FOUND
    assert wire.send(wire_requests.message(name, b"x")).status.code == Code.TOPIC_NOT_FOUND
    assert wire.receive(name, name, wait_ms=100).status.code == Code.TOPIC_NOT_FOUND


def test_receive_message_of_an_unknown_group(
    official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str
) -> None:
    wire.create_topic(name)
    official.call(
        "simple",
        name=name,
        endpoint=broker.endpoint,
        group=name,
        topics={name: "*"},
        wait_s=1,
    )
    with pytest.raises(OfficialError) as refusal:
        official.call("receive", name=name)
    assert refusal.value.code == Code.CONSUMER_GROUP_NOT_FOUND


def test_a_topic_and_group_made_by_hand_work(
    official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str
) -> None:
    wire.create_topic(name)
    wire.create_group(name, max_attempts=2)
    official.call("producer", name=name, endpoint=broker.endpoint, topics=[name])
    official.call("send", name=name, topic=name, text="allowed")
    official.call(
        "simple",
        name=f"{name}-c",
        endpoint=broker.endpoint,
        group=name,
        topics={name: "*"},
        wait_s=5,
    )
    [message] = official.call("receive", name=f"{name}-c")
    assert text(message) == "allowed"
