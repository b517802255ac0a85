"""What became of dead letters, in a column."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.engine.letter_states import LetterStates, pack_letters, unpack_letters
from latermq_broker.engine.model import DeadState
from latermq_broker.engine.snapshot import snapshot
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


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "trim"]), st.integers(0, 40), st.sampled_from([2, 3]))
    )
)
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
        assert [offset for offset in range(45) if offset in letters] == sorted(model)
        assert [letters.get(offset) for offset in range(45)] == list(map(model.get, range(45)))
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
