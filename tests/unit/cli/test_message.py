"""`latermq message find` and `latermq message show`."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.engine.state.model import Failure
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import message_pb2
from support.cli_rig import CliRig
from support.memory_files import MemoryFiles


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_find(rig: CliRig) -> None:
    rig.send_message("m-1", keys=("order-1", "eu"), tag="created")
    rig.send_message("m-2", keys=("order-2", "eu"), wait_ms=60_000)
    header, late, first = rig.ok("message", "find", "orders", "--key", "eu").splitlines()
    assert " ".join(header.split()) == "STORED TOPIC QUEUE OFFSET TAG KEYS BYTES MESSAGE ID"
    assert "orders  later       -" in late
    assert "orders      0       0  created  order-1, eu      4  m-1" in first
    (only,) = rig.json("message", "find", "--id", "m-1")["messages"]
    assert (only["topic"], only["queue_offset"]) == ("orders", 0)
    found = rig.json("message", "find", "orders", "--from", "-1m", "--to", "1m")
    assert [each["message_id"] for each in found["messages"]] == ["m-1"]
    assert rig.ok("message", "find", "orders", "--to", "-1m") == "no such message\n"
    assert rig.ok("message", "find", "--id", "m-3") == "no such message\n"
    for n in range(5):
        rig.send_message(f"more-{n}", keys=("eu",))
    limited = rig.ok("message", "find", "orders", "--key", "eu", "--limit", "2")
    assert limited.splitlines()[-1] == "… more than 2; raise --limit"


def test_a_damaged_message_is_not_said_to_be_none(rig: CliRig) -> None:
    rig.send_message("m-1", keys=("k1",), body=b"to be damaged")
    rig.send_message("m-2", keys=("k2",))
    assert isinstance(rig.files, MemoryFiles)
    segment = next(one for path, one in rig.files.inodes.items() if path.suffix == ".seg")
    segment.data[segment.data.index(b"to be damaged")] ^= 1
    (position,) = rig.json("message", "find", "orders", "--key", "k1")["damaged_positions"]
    damaged = f"could not be read (damaged at position {position})\n"
    said = rig.ok("message", "find", "orders", "--key", "k1")
    assert said == f"1 message with this key {damaged}"
    assert rig.ok("message", "find", "--id", "m-1") == f"1 message with this id {damaged}"
    assert rig.ok("message", "find", "orders", "--key", "none") == "no such message\n"
    timed = rig.ok("message", "find", "orders", "--from", "-1m", "--to", "1m")
    assert "m-2" in timed
    assert timed.endswith(f"1 message of this time {damaged}")
    refused = rig.missing("message", "show", "m-1")
    assert f"message 'm-1' could not be read: damaged at position {position}" in refused
    assert "damaged" not in rig.ok("message", "show", "m-2")


def test_find_refuses(rig: CliRig) -> None:
    assert "--key, --id, or --from" in rig.refused("message", "find", "orders")
    assert "TOPIC" in rig.refused("message", "find", "--key", "k")
    late, soon = "2026-05-02T12:00:00Z", "2026-05-01T12:00:00.500Z"
    line = rig.refused("message", "find", "orders", "--from", late, "--to", soon)
    assert "--from 2026-05-02 12:00:00 UTC is after --to 2026-05-01 12:00:00.500 UTC" in line
    assert "without" in rig.refused("message", "find", "--id", "m", "--key", "k")
    assert "not found" in rig.missing("message", "find", "nothing", "--key", "k")


def test_show_tells_where_it_is(rig: CliRig) -> None:
    rig.make_group(wait_ms=5_000)
    rig.send_message("m-1", keys=("k",), properties={"shop": "berlin"}, body=b"hello")
    shown = rig.ok("message", "show", "m-1")
    assert "No group has read the topic yet." in shown
    assert "shop = berlin" in shown
    assert "hello" in shown
    rig.send_message("m-2")
    rig.fail(Failure("TimeoutError", "no answer", ""))
    assert "failed, attempt 1 of 3; waits for the next until" in rig.ok("message", "show", "m-1")
    assert "ready; the next of its queue" in rig.ok("message", "show", "m-2")
    (held,) = rig.receive()
    assert "leased by client-1, attempt 1 of 3" in rig.ok("message", "show", "m-2")
    rig.ack(held)
    assert "done: acknowledged" in rig.ok("message", "show", "m-2")
    rig.advance(5_000)
    assert "ready again, after attempt 1 of 3" in rig.ok("message", "show", "m-1")
    (again,) = rig.receive()
    rig.engine.forward("billing", again.handle, rig.now_ms)
    shown = rig.ok("message", "show", "m-1", "--topic", "orders")
    assert "after 2 attempts: dead letter 0" in shown
    assert "latermq dead show billing --offset 0" in shown
    assert "2 messages have this id: %DLQ%billing" in rig.ok("message", "show", "m-1")
    assert "died in" in rig.ok("message", "show", "m-1", "--topic", "%DLQ%billing")
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.ack(*rig.receive())
    assert "was dead letter 0; redriven" in rig.ok("message", "show", "m-1", "--topic", "orders")
    letter = rig.ok("message", "show", "m-1", "--topic", "%DLQ%billing")
    assert "A dead letter that was redriven: readers of the topic pass it over." in letter
    lives = rig.json("message", "show", "m-1", "--topic", "orders")["lives"]
    assert lives[0]["groups"][0]["state"] == "died"


def test_show_a_delayed_one(rig: CliRig) -> None:
    rig.send_message("late", wait_ms=60_000)
    shown = rig.ok("message", "show", "late")
    assert "Delayed; no group sees it before" in shown
    assert "latermq pending expedite late" in shown
    assert " later " in rig.ok("message", "find", "--id", "late")
    rig.ok("pending", "postpone", "late", "--delay", "2h")
    assert ", moved from " in rig.ok("message", "show", "late")
    rig.ok("pending", "cancel", "late", "--yes")
    assert "Cancelled or recalled while it waited" in rig.ok("message", "show", "late")
    assert " never " in rig.ok("message", "find", "--id", "late")
    assert "no message 'gone'" in rig.missing("message", "show", "gone")


def test_who_may_not_see_bodies_is_told_the_rest(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unary = rig.transport.unary

    async def guarded(path: str, request: bytes, *rest: Any) -> bytes:
        if not path.endswith("/DescribeMessage"):
            return await unary(path, request, *rest)
        if not message_pb2.DescribeMessageRequest.FromString(request).with_body:
            return await unary(path, request, *rest)
        answer = message_pb2.DescribeMessageResponse()
        answer.status.code, answer.status.message = v2.FORBIDDEN, "you may not see bodies"
        return answer.SerializeToString()

    rig.send_message("m-1", body=b"secret")
    monkeypatch.setattr(rig.transport, "unary", guarded)
    text = rig.ok("message", "show", "m-1", "--topic", "orders")
    assert "6 bytes, not shown: you may not see bodies (code 40300)" in text
    assert "Where it is" in text
    shown = rig.json("message", "show", "m-1", "--topic", "orders")
    assert shown["lives"][0]["message"]["body"] == ""
    assert shown["body_hidden"] == "you may not see bodies (code 40300)"
    assert "40300" in rig.refused("message", "show", "m-1", "--topic", "orders", "--body")
