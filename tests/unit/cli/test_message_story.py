"""What `latermq message show` says of each state a message can be in."""

from datetime import UTC
from typing import Any

import pytest

from latermq_cli.messages.message_story import Telling, tell
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead
from latermq_proto.latermq.v1 import message_pb2 as m

NOW_MS = 1_700_000_000_000
TELLING = Telling(width=100, now_ms=NOW_MS, zone=UTC)


def said(expired: bool = False, **group: Any) -> str:
    life = m.MessageLife(
        message=m.FoundMessage(topic="orders", message_id="m", queue_offset=3, body=b"x"),
        groups=[m.GroupLife(**{"group": "billing", "attempt": 2, "max_attempts": 3, **group})],
        expired=expired,
    )
    return " ".join(" ".join(tell(life, TELLING)).split())


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"state": m.READY}, "ready; the next of its queue"),
        ({"state": m.READY, "ahead_count": 1}, "ready; 1 message before it in its queue"),
        ({"state": m.READY, "expired": True}, "never delivered: it expired first"),
        (
            {"state": m.LEASED, "client_id": "c-1", "until_ms": NOW_MS + 5_000},
            "leased by c-1, attempt 2 of 3; the lease ends 2023-11-14 22:13:25.000 (in 5 s)",
        ),
        (
            {"state": m.WAITS_RETRY, "until_ms": NOW_MS + 60_000},
            "failed, attempt 2 of 3; waits for the next until 2023-11-14 22:14:20.000 (in 1m)",
        ),
        ({"state": m.RETRY}, "ready again, after attempt 2 of 3"),
        ({"state": m.RETRY, "attempt": 0}, "ready for attempt 1 of 3"),
        (
            {"state": m.RETRY, "attempt": 0, "dead_state": dead.REDRIVEN, "dead_offset": 4},
            "ready for attempt 1 of 3; redriven, it was dead letter 4",
        ),
        (
            {"state": m.WAITS_RETRY, "attempt": 0, "until_ms": NOW_MS + 5_000},
            "given back, no attempt counted; waits until 2023-11-14 22:13:25.000 (in 5 s)",
        ),
        ({"state": m.HELD, "ahead_count": 2}, "waits its turn: 2 messages before it in its"),
        (
            {"state": m.HELD, "parked": True},
            "0 messages before it in its message group, which is parked behind a dead letter",
        ),
        ({"state": m.DONE}, "done: acknowledged, or not wanted by the group's filter"),
        (
            {"state": m.DONE, "dead_state": dead.DEAD, "dead_offset": 4},
            "wanted by the group's filter; dead letter 4 of an earlier delivery is still there",
        ),
        (
            {"state": m.READY, "dead_state": dead.DEAD, "dead_offset": 4},
            "ready; the next of its queue; dead letter 4 of an earlier delivery is still there",
        ),
        (
            {"state": m.DIED, "dead_state": dead.DEAD, "dead_at_ms": NOW_MS, "dead_offset": 7},
            "dead since 2023-11-14 22:13:20.000 (now), after 2 attempts: dead letter 7",
        ),
        (
            {"state": m.DIED, "dead_state": dead.REDRIVEN},
            "was dead letter 0; redriven, and no longer with the group",
        ),
        ({"state": m.DIED, "dead_state": dead.DROPPED}, "was dead letter 0; dropped for good"),
        ({"state": m.LIFE_UNKNOWN}, "not known: the group holds too many messages"),
    ],
)
def test_of_a_group(group: dict[str, Any], words: str) -> None:
    assert words in said(**group)


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        (
            {"waits_until_ms": NOW_MS + 1_000},
            "delay",
            "Delayed; no group sees it before 2023-11-14",
        ),
        ({}, "delay", "Not known: its delivery time came, or was changed"),
        ({"cancelled": True}, "delay", "Cancelled or recalled while it waited"),
        ({"half": True}, "transaction", "Its transaction is open"),
        ({}, "transaction", "Not known: its transaction ended"),
        ({"cancelled": True}, "transaction", "Its transaction was rolled back"),
    ],
)
def test_of_one_that_is_in_no_queue(fields: dict[str, Any], kind: str, words: str) -> None:
    message = m.FoundMessage(
        topic="orders",
        message_id="m",
        queue_id=-1,
        queue_offset=-1,
        message_type=kind,
        cancelled=fields.pop("cancelled", False),
    )
    life = m.MessageLife(message=message, **fields)
    assert words in " ".join(" ".join(tell(life, TELLING)).split())


def test_text_of_messages_is_escaped_and_long_bodies_are_cut() -> None:
    message = m.FoundMessage(
        topic="orders",
        message_id="m\x1b[2J",
        body=b"\n".join(b"line" for _ in range(20)),
        body_size=99,
        properties={"a\x07": "b"},
    )
    lines = tell(m.MessageLife(message=message), TELLING)
    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert any("--body shows the rest" in line for line in lines)
