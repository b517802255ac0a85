"""latermq.spark.offsets: one text for each offset."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq.spark.errors import OffsetError
from latermq.spark.offsets import Offsets, begun_again, creation_id

GOLDEN = (
    '{"version": 1, "topics": {"%DLQ%billing": {"0": 1234}, "orders": {"2": 7, "10": 8}}, '
    '"epochs": {"%DLQ%billing": "7f3a09c2d4e5b611", "orders": "00000000000000aa~2"}}'
)


def test_golden() -> None:
    offsets = Offsets(
        {"orders": {10: 8, 2: 7}, "%DLQ%billing": {0: 1234}},
        {"orders": "00000000000000aa~2", "%DLQ%billing": "7f3a09c2d4e5b611"},
    )
    assert json.dumps(offsets.encode()) == GOLDEN
    assert Offsets.decode(json.loads(GOLDEN)) == offsets


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
queues = st.dictionaries(st.integers(0, 300), st.integers(0, 1 << 60), max_size=4)


@given(st.dictionaries(names, queues, max_size=4), st.randoms())
def test_the_codec_is_canonical(topics: dict[str, dict[int, int]], random: Any) -> None:
    epochs = {topic: f"{index:016x}" for index, topic in enumerate(topics)}
    offsets = Offsets(topics, epochs)
    text = json.dumps(offsets.encode())
    assert Offsets.decode(json.loads(text)) == offsets
    assert json.dumps(Offsets.decode(json.loads(text)).encode()) == text

    def shuffled(mapping: dict[Any, Any]) -> dict[Any, Any]:
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    other = Offsets(
        shuffled({topic: shuffled(each) for topic, each in topics.items()}), shuffled(epochs)
    )
    assert json.dumps(other.encode()) == text


def test_another_version_is_refused_by_both_names() -> None:
    with pytest.raises(OffsetError, match=r"^LATERMQ_OFFSET: .*version 2.*version 1"):
        Offsets.decode({"version": 2, "topics": {}, "epochs": {}})


@pytest.mark.parametrize(
    "document",
    [
        {"version": 1},
        {"version": 1, "topics": [], "epochs": {}},
        {"version": 1, "topics": {"t": {"zero": 1}}, "epochs": {}},
        {"version": 1, "topics": {"t": {"0": None}}, "epochs": {}},
    ],
)
def test_what_is_not_an_offset_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match="cannot be read"):
        Offsets.decode(document)


def test_an_epoch_begun_again_keeps_its_creation_id() -> None:
    once = begun_again("00aa")
    assert (once, begun_again(once)) == ("00aa~1", "00aa~2")
    assert creation_id(begun_again(once)) == "00aa" == creation_id("00aa")
