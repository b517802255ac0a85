"""Each pair of things that a message may ask for, as docs/protocol.md has the table."""

from itertools import combinations
from pathlib import Path

import pytest

from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.messaging import Messaging
from support.wire_requests import message, send, timestamp

Code = definition_pb2.Code
PAGE = Path(__file__).parents[4] / "docs" / "protocol.md"
NAMES = ("time", "level", "group", "priority", "lite", "dedup", "half")


def table() -> dict[tuple[str, str], str]:
    """The table of the page: what becomes of each pair."""
    rows = PAGE.read_text().split("### Pairs", 1)[1].split("\n\n")[2].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    head, found = cells[0], {}
    for row in cells[2:]:
        for name, cell in zip(head[1:], row[1:], strict=True):
            if cell:
                found[row[0], name] = cell
    return found


def asking(*names: str) -> tuple[definition_pb2.Message, FakeCall]:
    """A message that asks for these, and the call that sends it."""
    one = message("orders", b"x", properties={"LATERMQ_DEDUP_ID": "a"} if "dedup" in names else {})
    properties = one.system_properties
    if "time" in names:
        properties.delivery_timestamp.CopyFrom(timestamp(START_MS + 120_000))
    if "group" in names:
        properties.message_group = "g"
    if "priority" in names:
        properties.priority = 1
    if "lite" in names:
        properties.lite_topic = "room"
    if "half" in names:
        properties.message_type = definition_pb2.TRANSACTION
    return one, FakeCall(metadata={"latermq-delay-level": "5"} if "level" in names else {})


def fitting(names: tuple[str, str]) -> TopicType:
    """The type of a topic that takes what holds of the pair."""
    if "lite" in names:
        return TopicType.LITE
    if "priority" in names and "group" not in names:
        return TopicType.PRIORITY
    return TopicType.MIXED


def test_the_table_has_every_pair() -> None:
    assert list(table()) == list(combinations(NAMES, 2))


@pytest.mark.parametrize("type", [None, *TopicType])
@pytest.mark.parametrize("names", [*combinations(NAMES, 2)], ids="-".join)
async def test_a_pair(names: tuple[str, str], type: TopicType | None) -> None:
    word = table()[names]
    async with Messaging() as broker:
        if type is not None:
            queues = 2 if type is TopicType.PRIORITY else 0
            broker.engine.topics.create("orders", type, queues, START_MS)
        one, call = asking(*names)
        status = (await broker.call("SendMessage", send([one]), call)).status
        if word == "refused":
            assert status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        elif type is fitting(names):
            assert status.code == Code.OK
        delayed = broker.engine.overview().delayed
        if status.code != Code.OK:
            assert not delayed
            return
        later = {"time", "level"} & set(names)
        assert bool(delayed) == bool(later)
        if names == ("time", "level"):
            await broker.advance(60_000)
            assert (await broker.receive()).bodies == [b"x"]


async def test_of_a_message_group_and_a_priority_the_message_group_holds() -> None:
    async with Messaging() as broker:
        one, call = asking("group", "priority")
        assert (await broker.call("SendMessage", send([one]), call)).status.code == Code.OK
        (got,) = (await broker.receive()).messages
        assert got.system_properties.message_group == "g"
