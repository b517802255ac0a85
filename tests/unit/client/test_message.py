"""What a message may be made of, before any broker sees it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from latermq import Message

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"body": "text"}, TypeError, "body must be bytes"),
        ({"keys": "abc"}, TypeError, r"keys must be a sequence of str, not 'abc' \(str\)"),
        ({"keys": ["a", 1]}, TypeError, r"each of keys must be a str, not 1 \(int\)"),
        ({"properties": {"a": 1}}, TypeError, r"properties\['a'\] must be a str, not 1 \(int\)"),
        ({"properties": {1: "a"}}, TypeError, "each key of properties must be a str, not 1"),
        ({"properties": ["a"]}, TypeError, "properties must be a mapping of str to str, not"),
        ({"tag": 5}, TypeError, r"tag must be a str or None, not 5 \(int\)"),
        ({"message_group": b"g"}, TypeError, "message_group must be a str or None, not b'g'"),
        ({"lite_topic": 5}, TypeError, "lite_topic must be a str or None, not 5"),
        ({"delay": 5}, TypeError, r"delay must be a timedelta.* not 5 \(int\)"),
        ({"deliver_at": "tomorrow"}, TypeError, "deliver_at must be a datetime, not 'tomorrow'"),
        ({"deliver_at": datetime(2026, 1, 1)}, ValueError, "time zone"),
        ({"delay": timedelta(seconds=-1)}, ValueError, "negative"),
        ({"deliver_at": NOW, "delay": timedelta(0)}, ValueError, "not both"),
        ({"dedup_id": 5}, TypeError, r"dedup_id must be a str, not 5 \(int\)"),
        ({"dedup_id": ""}, ValueError, "dedup_id must not be empty"),
        ({"dedup_id": "é" * 65}, ValueError, "dedup_id has 130 bytes, 128 are allowed"),
        (
            {"dedup_id": "a", "properties": {"LATERMQ_DEDUP_ID": "a"}},
            ValueError,
            "give dedup_id or the property",
        ),
        ({"priority": "9"}, TypeError, "priority must be an int, not '9'"),
        ({"priority": True}, TypeError, "not True"),
        ({"priority": -1}, ValueError, "0 to 2147483647"),
        ({"priority": 1 << 31}, ValueError, "0 to 2147483647"),
        ({"priority": 1, "message_group": "g"}, ValueError, "priority or message_group"),
    ],
)
def test_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Message(**{"body": b"", **arguments})


def test_due() -> None:
    assert Message(b"x").due(NOW) is None
    assert Message(b"x", delay=timedelta(seconds=3)).due(NOW) == NOW + timedelta(seconds=3)
    assert Message(b"x", deliver_at=NOW - timedelta(days=1)).due(NOW) == NOW - timedelta(days=1)
