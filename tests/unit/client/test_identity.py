"""Message ids in RocketMQ's version 1, client ids, and our version."""

import re
import tomllib
from pathlib import Path

from latermq._values.identity import (
    COUNTER_MASK,
    MessageIds,
    __version__,
    message_ids,
    new_client_id,
)

ROOT = Path(__file__).resolve().parents[3]
SECOND_OF_2021 = 1_609_459_200


def test_layout() -> None:
    ids = MessageIds(0x0A0B0C0D0E0F, 0x1_2345, SECOND_OF_2021 + 0x01020304)
    assert ids.next() == "010A0B0C0D0E0F23450102030400000000"
    assert ids.next() == "010A0B0C0D0E0F23450102030400000001"


def test_the_counter_wraps() -> None:
    ids = MessageIds(0, 0, SECOND_OF_2021)
    ids._counter = iter([COUNTER_MASK, COUNTER_MASK + 1])  # type: ignore[assignment]
    assert ids.next().endswith("FFFFFFFF")
    assert ids.next().endswith("00000000")


def test_the_process_has_one_generator() -> None:
    assert message_ids() is message_ids()
    assert re.fullmatch(r"01[0-9A-F]{32}", message_ids().next())


def test_client_ids_differ() -> None:
    first, second = new_client_id(), new_client_id()
    assert first != second
    assert re.fullmatch(r".+@\d+@\d+@\w+", first)


def test_version_is_the_distributions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__
