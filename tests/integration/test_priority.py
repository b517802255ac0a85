"""Topics of type priority through our client and command line."""

import json
import subprocess
import sys
from typing import Any

import pytest

from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import topic_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient
from support.wire_requests import message

Code = definition_pb2.Code


def cli(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "latermq_broker", *words, "--endpoint", broker.endpoint]
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(30), check=False)


def shown(broker: BrokerProcess, *words: str) -> Any:
    done = cli(broker, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_line_sends_and_tells(sdk_broker: BrokerProcess, name: str) -> None:
    made = cli(sdk_broker, "topic", "create", name, "--type", "priority")
    assert made.stdout == (
        f"topic {name}: priority, 10 queues: priorities 0 to 9, higher ones first\n"
    )
    for priority in ("2", "5"):
        assert cli(sdk_broker, "send", name, priority, "--priority", priority).returncode == 0
    delayed = ("send", name, "later", "--priority", "4", "--delay", "1h")
    assert cli(sdk_broker, *delayed).returncode == 0
    [waiting] = shown(sdk_broker, "pending", "list", "--topic", name)["messages"]
    assert waiting["priority"] == 4
    table = cli(sdk_broker, "pending", "list", "--topic", name).stdout
    assert "PRIORITY" in table
    got = shown(sdk_broker, "receive", name, "--group", name)
    assert (got["body"], got["priority"]) == ("5", 5)
    story = cli(sdk_broker, "message", "show", got["message_id"]).stdout
    assert "priority" in story


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--priority", "-1"), "-1 is not in the range"),
        (("--priority", "1", "--message-group", "g"), "one of --message-group and --priority"),
        (("--priority", "1"), "does not fit a new topic"),
    ],
)
def test_what_the_command_line_refuses(
    sdk_broker: BrokerProcess, words: tuple[str, ...], text: str
) -> None:
    done = cli(sdk_broker, "send", "mixed_and_plain", "x", *words)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert text in line


def test_raw_requests(operator: WireClient, name: str) -> None:
    """The codes, and what a client that knows nothing of it is given."""
    operator.create_topic(name, type=topic_pb2.PRIORITY, queue_count=3)
    operator.create_topic(f"{name}_mixed")

    def send(topic: str = name, priority: int | None = None, **fields: Any) -> int:
        made = message(topic, b"%d" % (priority or 0), **fields)
        if priority is not None:
            made.system_properties.priority = priority
        return operator.send(made).status.code

    assert send(priority=-1) == Code.BAD_REQUEST
    assert send() == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert send(deliver_at_ms=1) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert send(f"{name}_mixed", priority=1) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    for priority in (0, 1, 2**31 - 1, 2):
        assert send(priority=priority) == Code.OK
    assert send(priority=1, deliver_at_ms=1) == Code.OK  # a past time is now
    [queue] = {tuple(one.accept_message_types) for one in operator.route(name).message_queues}
    assert queue == (definition_pb2.PRIORITY,)
    got = operator.receive(name, name).messages
    assert [one.system_properties.queue_id for one in got] == [2, 2, 1, 1, 0]
    assert {one.system_properties.priority for one in got[:2]} == {2**31 - 1, 2}
