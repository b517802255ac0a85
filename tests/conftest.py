"""For every suite."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.native import refuse_patches, small_limits
from support.small_runs import small_runs

# A shell starts background jobs with SIGINT ignored, and what they start inherits it. Tests press
# Ctrl-C on processes of theirs; from here on those get it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is; `timeout` ends what hangs.
settings.register_profile("latermq", deadline=None)
settings.load_profile("latermq")

refuse_patches()


@pytest.fixture(name="small_runs", scope="module")
def small_runs_for_the_module() -> Iterator[None]:
    with small_limits() as assign:
        small_runs(assign)
        yield
