"""What strangers write reaches neither a terminal nor a log viewer as more than text."""

import json

import pytest

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.errors import GroupNotFoundError, TopicNotFoundError, unknown_topic
from latermq_broker.services.auth.access_rules import Want
from latermq_text.printable import escaped

OBEYED = {
    "escape": "\x1b[2J",
    "newline": "\n",
    "C1 control sequence": "\x9b31m",
    "next line": "\x85",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "right-to-left override": "\u202e",
    "isolate": "\u2066",
    "tag beyond U+FFFF": "\U000e0041",
    "lone surrogate": "\ud800",
}


@pytest.mark.parametrize("text", OBEYED.values(), ids=OBEYED)
def test_what_is_obeyed_is_escaped_and_means_the_same_in_json(text: str) -> None:
    whole = f"Zürich {text} 日本"
    shown = escaped(json.dumps({"a": whole}, ensure_ascii=False))
    assert shown.isprintable()
    assert "Zürich" in shown
    assert json.loads(shown) == {"a": whole}
    assert escaped(whole).isprintable()


def test_what_is_printable_stays() -> None:
    assert escaped("Zürich 日本 🙂 a\\b") == "Zürich 日本 🙂 a\\b"


def test_a_refusal_repeats_no_more_than_a_name_may_have() -> None:
    long, longest = "x" * 100_000, "%DLQ%" + "x" * 250
    refusals: list[object] = [
        Want((Right.PUB,), Kind.TOPIC, long),
        unknown_topic(long, strict=True),
    ]
    refusals += [TopicNotFoundError(long), GroupNotFoundError(long)]
    for refusal in refusals:
        assert str(refusal).endswith("x… (100000 characters)")
        assert len(str(refusal)) < 400
    assert str(TopicNotFoundError(longest)) == f"topic not found: {longest}"
