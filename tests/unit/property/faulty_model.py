"""Two models and a property for the tests of `make models`: one of each kind is at fault."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule


class FaultyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @rule(number=st.integers(0, 9))
    def add(self, number: int) -> None:
        self.total += number
        assert self.total != 9, "nine is too many"


class SoundMachine(RuleBasedStateMachine):
    @rule()
    def nothing(self) -> None:
        """It holds."""


FaultyCase = FaultyMachine.TestCase
FaultyCase.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)
SoundCase = SoundMachine.TestCase
SoundCase.settings = settings(max_examples=5, stateful_step_count=5, deadline=None)


@given(st.integers(0, 100))
def faulty_property(number: int) -> None:
    assert number < 90, "too large"


@given(number=st.integers(0, 100))
def property_with_a_fixture(tmp_path: object, number: int) -> None:
    """It is pytest's to run."""
