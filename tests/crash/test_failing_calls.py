"""Every call of the file system in a broker's life fails, in every way, once or for good; or lies.

N = 1, 2, 3 … until a life passes that the fault never reached. After each: nothing promised is
lost, nothing refused is there. A lie is a write or a sync that claims success and did nothing; when
the log went on and was synced after it, the next start has everything, or refuses with the damage,
or, where a checkpoint spares it the look, gives up what it reads and `log verify` says so.
"""

from contextlib import suppress
from itertools import count
from typing import Final

import pytest

from latermq_broker.errors import CorruptRecordError, LaterMQError
from latermq_broker.store.offline.inspect import verify_directory
from support.simulation import DIRECTORY, ERRORS, Simulation
from support.torn_files import LIE, Fault, TornFiles

STEPS: Final = 110
SEED: Final = 31  # one life with sends, leases, redrives, moved offsets and two segments
LIE_SEEDS: Final = (11, 13)
CALLS_MIN: Final = 80
CALLS_MAX: Final = 2_000


def begun(seed: int) -> Simulation:
    simulation = Simulation(seed, image_share=0)
    simulation.begin()
    return simulation


def live(simulation: Simulation, steps: int = STEPS) -> None:
    """As far as it goes: a failure that the broker reports ends the life."""
    with suppress(LaterMQError, OSError):
        for _ in range(steps):
            simulation.step()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("persistent", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("name", ERRORS)
def test_the_nth_call_of_a_life_fails(name: str, persistent: bool) -> None:
    for at in count(1):
        assert at < CALLS_MAX
        simulation = begun(SEED)
        files = simulation.files
        files.fault = Fault(files.calls + at, ERRORS[name], persistent)
        live(simulation)
        try:
            simulation.die(power=at % 2 == 0)
            simulation.check_start(None)
        except BaseException as error:
            error.add_note(f"{name} at call {at}")
            raise
        if not files.fired and files.calls < files.fault.at:
            assert at > CALLS_MIN
            return


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ERRORS)
def test_the_nth_call_of_a_start_fails(name: str) -> None:
    simulation = begun(SEED)
    live(simulation)
    simulation.die(power=True)
    for at in count(1):
        assert at < CALLS_MAX
        files = TornFiles(simulation.files.disk.clone())
        files.fault = Fault(at, ERRORS[name])
        with suppress(LaterMQError, OSError):
            simulation.opened(files).abandon()
        fired, files.fault = files.fired, None
        files.disk.kill()
        again = TornFiles(files.disk)
        simulation.examine(again)
        if not fired and files.calls < at:
            return


def sound(files: TornFiles) -> bool:
    """Tell whether `latermq log verify` finds the log whole."""
    try:
        return verify_directory(DIRECTORY, files).ok
    except CorruptRecordError:
        return False


@pytest.mark.timeout(300)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("seed", LIE_SEEDS)
def test_the_nth_call_lies(seed: int, power: bool) -> None:
    refused = told = intact = hidden = 0
    for at in count(1):
        assert at < CALLS_MAX
        simulation = begun(seed)
        files = simulation.files
        files.fault = Fault(files.calls + at, LIE)
        live(simulation)
        if not files.lies:
            if files.calls < files.fault.at:
                break
            continue
        for _ in range(3):  # what is written after the lie is durable, and says so
            with suppress(LaterMQError, OSError):  # it may read what was never written
                simulation.clients.act()
            with suppress(LaterMQError, OSError):
                simulation.sync()
                simulation.sync()
        simulation.die(power=power)
        copy = TornFiles(simulation.files.disk.clone())
        before = copy.disk.snapshot()
        try:
            simulation.opened(copy).abandon()
        except CorruptRecordError:
            refused += 1
            assert copy.disk.snapshot() == before
            continue
        try:
            simulation.examine(TornFiles(simulation.files.disk.clone()))
            intact += 1
        except (AssertionError, CorruptRecordError) as error:
            [(call, path)] = files.lies
            if not sound(simulation.files):
                told += 1  # a checkpoint was taken after it: given up when it is read
            elif call == "sync_directory" and path == DIRECTORY / "log":
                hidden += 1  # a name never stored took its file along: nothing is left to tell
            else:
                error.add_note(f"{call} of {path} lied at call {at}")
                raise
    print(f"{refused} refused, {told} told, {intact} intact, {hidden} could not be seen")
    assert refused > 5
    assert hidden <= 1
