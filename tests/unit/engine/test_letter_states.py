"""What became of dead letters, in columns."""

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.engine.checkpoint.snapshot import snapshot
from latermq_broker.engine.state.letter_states import (
    BLOCK,
    LetterStates,
    pack_letters,
    unpack_letters,
)
from latermq_broker.engine.state.model import DeadState
from support.engine_rig import EngineRig

#  two letters of topic 7: offset 3 redriven at 1,000 ms, offset 5 dropped at 2,000 ms
GOLDEN: Final = bytes.fromhex(
    "0700000000000000 0300000000000000 0300000000000000"
    "a20f000000000000 0000000000000000 431f000000000000"
)


def test_golden_section() -> None:
    letters = LetterStates()
    letters.put(5, DeadState.DROPPED, 2_000)
    letters.put(3, DeadState.REDRIVEN, 1_000)
    assert pack_letters({7: letters, 8: LetterStates()}) == GOLDEN
    (found,) = unpack_letters(GOLDEN).values()
    assert dict(found.items()) == {3: (DeadState.REDRIVEN, 1_000), 5: (DeadState.DROPPED, 2_000)}


#  letters 3 and BLOCK of topic 7: a column for each of the two blocks
BLOCKS: Final = bytes.fromhex(
    "0700000000000000 0300000000000000 0100000000000000 a20f000000000000"
    "0700000000000000 0002000000000000 0100000000000000 431f000000000000"
)


def test_golden_section_of_two_blocks() -> None:
    letters = LetterStates()
    letters.put(BLOCK, DeadState.DROPPED, 2_000)
    letters.put(3, DeadState.REDRIVEN, 1_000)
    assert pack_letters({7: letters}) == BLOCKS
    (found,) = unpack_letters(BLOCKS).values()
    assert dict(found.items()) == dict(letters.items())


def test_the_one_column_of_earlier_versions_is_read() -> None:
    rows = [0] * (3 * BLOCK)
    for at in (0, BLOCK, 3 * BLOCK - 1):
        rows[at] = 5_000 << 2 | DeadState.DROPPED
    section = struct.pack(f"<I4xQQ{len(rows)}Q", 7, 100, len(rows), *rows)
    (found,) = unpack_letters(section).values()
    assert [offset for offset, _ in found.items()] == [100, 100 + BLOCK, 99 + 3 * BLOCK]
    assert len(found) == 3


def test_letters_far_apart_cost_nothing_in_between() -> None:
    letters = LetterStates()
    letters.put(2_000_000_000, DeadState.DROPPED, 1_000)
    letters.put(0, DeadState.DROPPED, 1_000)
    assert len(pack_letters({7: letters})) == 2 * (24 + 8)
    letters.trim(2_000_000_000)
    assert (len(letters), letters.get(0)) == (1, None)


def test_the_newest_first_takes_no_longer() -> None:
    """Each change once moved all that stood behind it: half a minute for so many."""
    letters = LetterStates()
    for offset in range(150_000, 0, -1):
        letters.put(offset, DeadState.DROPPED, 1_000)
    whole = 150_000 // BLOCK + 1
    assert len(pack_letters({7: letters})) == 24 * whole + 8 * 150_000


OFFSETS: Final = st.one_of(st.integers(0, 40), st.integers(BLOCK - 4, BLOCK + 4))


@given(st.lists(st.tuples(st.sampled_from(["put", "trim"]), OFFSETS, st.sampled_from([2, 3]))))
def test_a_dictionary_says_the_same(steps: list[tuple[str, int, int]]) -> None:
    letters, model = LetterStates(), dict[int, tuple[DeadState, int]]()
    for since_ms, (verb, offset, state) in enumerate(steps):
        if verb == "put":
            letters.put(offset, DeadState(state), since_ms)
            model[offset] = (DeadState(state), since_ms)
        else:
            letters.trim(offset)
            model = {at: change for at, change in model.items() if at >= offset}
        assert dict(letters.items()) == model
        assert len(letters) == len(model)
        assert [offset for offset in range(2 * BLOCK) if offset in letters] == sorted(model)
        assert all(letters.get(offset) == model.get(offset) for offset in range(45))
        again = unpack_letters(pack_letters({1: letters})).get(1, LetterStates())
        assert (dict(again.items()), len(again)) == (model, len(model))


@pytest.mark.parametrize("to_topic", ["", "elsewhere"])
def test_a_checkpoint_has_eight_bytes_for_a_letter(to_topic: str) -> None:
    rig = EngineRig()
    rig.engine.topics.ensure("elsewhere", rig.now_ms)
    for number in range(40):
        rig.send(f"m{number}")
        [held] = rig.receive(count=1)
        rig.engine.forward("billing", held.handle, rig.now_ms)
    for offset in range(40):
        rig.engine.dead.redrive("billing", offset, to_topic, rig.now_ms)
    sections = snapshot(rig.engine._state)
    assert len(sections["letters"]) == 24 + 8 * 40
    assert "dead" not in sections
