"""An official client that is given a namespace is refused: it must not share topics silently."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign
from interop.client_cases import CONFIG
from interop.official import SCRIPT, OfficialClient, OfficialError
from interop.test_matrix import ASKED
from latermq import admin
from latermq_proto.latermq.v1 import topic_pb2
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

pytestmark = pytest.mark.timeout(foreign.BUILD_S_MAX)  # the first one waits for the build

KNOWN = ("python", "node", "go", "java")  # that have a namespace among their settings here
REFUSED = "namespace 'shop-a' is refused (compat.namespaces = refuse)"


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(room / "data", config=CONFIG) as broker:
        yield broker.start()


@pytest.fixture(scope="module", params=[name for name in ASKED if name in KNOWN])
def official(request: pytest.FixtureRequest, room: Path) -> Iterator[OfficialClient]:
    words = [sys.executable, str(SCRIPT)]
    if request.param != "python":
        try:
            words = foreign.command(request.param)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
    command = ["env", "TEST_NAMESPACE=shop-a", *words]
    with OfficialClient(room / request.param, command) as client:
        yield client


def told(client: OfficialClient, refusal: OfficialError) -> str:
    """What the user of the client can read: its error, and its log."""
    logs = [path for path in client.log_dir.rglob("*") if path.is_file()]
    logs += (foreign.CACHE / "java" / "logs").rglob("*.log")
    return refusal.message + "".join(path.read_text(errors="replace") for path in logs)


def test_a_producer_with_a_namespace_is_refused_when_it_starts_or_sends(
    official: OfficialClient, broker: BrokerProcess, name: str
) -> None:
    with pytest.raises(OfficialError) as refusal:  # noqa: PT012  some at once, some when they send
        official.call("producer", name=name, endpoint=broker.endpoint, topics=[name])
        official.call("send", name=name, topic=name, text="never")
    assert REFUSED in told(official, refusal.value)
    with admin.connect(broker.endpoint) as there:
        topics = there.call(there.topics.ListTopics, topic_pb2.ListTopicsRequest()).topics
    assert name not in [topic.name for topic in topics]


def test_a_simple_consumer_with_a_namespace_is_refused_when_it_starts_or_receives(
    official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str
) -> None:
    wire.create_topic(name)
    with pytest.raises(OfficialError) as refusal:  # noqa: PT012  some at once, some when they ask
        place = {"endpoint": broker.endpoint, "group": name, "topics": {name: "*"}}
        official.call("simple", name=name, wait_s=1, **place)
        official.call("receive", name=name)
    assert REFUSED in told(official, refusal.value)
