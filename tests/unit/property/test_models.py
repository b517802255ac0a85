"""`make models`: what a model finds is told, ends with 1, and can be repeated."""

import re

import pytest

from property.hunt import hunt, repeat
from property.models import Model, all_models, hunts, look, main, models_in
from unit.property.faulty_model import FaultyMachine, SoundMachine, faulty_property

MODULE = "unit.property.faulty_model"


def test_a_finding_is_told_with_its_record_and_ends_with_1(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--modules", MODULE, "--seconds", "4", "--seed", "5", "--workers", "1"]) == 1
    told = capfd.readouterr().out
    assert "AssertionError: nine is too many" in told
    assert "AssertionError: too large" in told
    assert re.search(r"2 findings \(seed 5\)", told)
    record = re.search(r"repeat: make models REPEAT=\"(\S+Machine) (\S+) ([\w+/=]+)\"", told)
    assert record is not None
    assert main(["--repeat", *record.groups()]) == 1
    assert "nine is too many" in capfd.readouterr().out
    whole = re.search(r"or the whole hunt: make models REPEAT=\"(\S+Machine) (\d+)\"", told)
    assert whole is not None
    assert main(["--repeat", *whole.groups()]) == 1


def test_models_that_hold_end_with_0(capfd: pytest.CaptureFixture[str]) -> None:
    module = "property.test_row_deadlines_model"
    assert main(["--modules", module, "--seconds", "2", "--workers", "1"]) == 0
    assert re.search(r"models: \d+ hunts, \d+ examples, 0 findings", capfd.readouterr().out)


def test_hunts_are_those_of_the_seed() -> None:
    models = models_in(MODULE)
    assert models == [
        Model(MODULE, name)
        for name in (
            "FaultyMachine",
            "SoundMachine",
            "faulty_property",
        )  # not the one with a fixture
    ]
    first, again, other = (
        [next(found) for _ in range(6)]
        for found in (hunts(models, 1), hunts(models, 1), hunts(models, 2))
    )
    assert first == again != other
    assert {model for model, _ in first[:3]} == set(models)


def test_a_hunt_is_repeated_by_its_seed_whether_ci_is_set_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hunted = hunt(FaultyMachine, 3, 200)
    assert hunted.error == "AssertionError: nine is too many"
    monkeypatch.setenv("CI", "true")
    assert hunt(FaultyMachine, 3, 200) == hunted
    assert repeat(FaultyMachine, hunted.record) == hunted.error
    assert repeat(SoundMachine, hunted.record) == ""
    assert hunt(SoundMachine, 3, 7).examples == 7
    hunted = look(Model(MODULE, "faulty_property"), 4, 60.0).hunted
    assert repeat(faulty_property, hunted.record) == hunted.error == "AssertionError: too large"


def test_a_hunt_ends_when_its_time_is_over() -> None:
    assert hunt(SoundMachine, 3, 1_000_000, until_s=0.0).examples == 0


def test_every_machine_with_a_test_is_a_model() -> None:
    models = [str(model) for model in all_models()]
    for name in ("anew", "engine", "lite", "repair", "store_machine", "validity"):
        assert any(f"test_{name}" in model for model in models), name
    assert len(models) == len(set(models)) >= 16
