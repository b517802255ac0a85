"""For every suite."""

import signal

import pytest
from hypothesis import settings

from support import machine
from support.native import refuse_patches

# Found by its entry point, too; here for an environment that was installed before there was one.
pytest_plugins = ["latermq.testing.plugin"]

# A shell starts background jobs with SIGINT ignored, and what they start inherits it. Tests press
# Ctrl-C on processes of theirs; from here on those get it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples each time, on every machine: `make models` has others. How long an example takes
# says how busy the machine is; `timeout` ends what hangs.
settings.register_profile("latermq", settings.get_profile("ci"), deadline=None)
settings.register_profile("seeded", settings.get_profile("ci"), deadline=None, derandomize=False)
settings.load_profile("latermq")

refuse_patches()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers-per-core", type=int, default=1,
        help="of `--numprocesses=auto`, for each core that we get; 2 for suites that mostly wait",
    )  # fmt: skip


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Say how many workers `--numprocesses=auto` means: what the machine does, not what it has."""
    return machine.workers(config.getoption("--workers-per-core"))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed", None) is not None:
        settings.load_profile("seeded")  # else the seed would mean nothing
    machine.patience()  # measured here, before the workers make the machine busy; they inherit it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stretch what ends a test that hangs to what this machine needs."""
    usual_s = float(config.getini("timeout"))
    for item in items:
        own = item.get_closest_marker("timeout")
        seconds, how = (float(own.args[0]), own.kwargs) if own else (usual_s, {})
        item.add_marker(pytest.mark.timeout(machine.patient(seconds), **how), append=False)
