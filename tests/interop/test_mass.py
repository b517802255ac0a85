"""The small form of `make interop-mass`: two languages, 40 consumers, thousands of messages."""

from pathlib import Path

import pytest

from interop import foreign
from interop.crowd import Share
from interop.mass import Stage, play
from support.broker_process import BrokerProcess

# What a killed push consumer held comes back when it has been silent for so long.
CONFIG = "[server]\nclient_silent_ms_max = 12000\n[delivery]\nauto_renew_lease_ms = 5000\n"
SHARES = (Share("python", 6, 4), Share("node", 6, 4), Share("python", 6, 4), Share("node", 6, 4))


@pytest.mark.parametrize(
    "stage",
    [
        Stage("FIFO quiet", 2_000, fifo=True, timeout_s=60),
    ],
    ids=lambda stage: stage.name.replace(" ", "-"),
)
def test_many_consumers_in_one_group(tmp_path: Path, stage: Stage) -> None:
    try:
        foreign.command("node")
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        outcome = play(stage, tmp_path, broker.start(), SHARES)
    assert not any(outcome.wrong.values()), outcome
    if stage.disturbances:
        assert outcome.again, "not even what failed at first"
