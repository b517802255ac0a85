"""The small form of `make interop-mass`: two languages, 40 consumers, thousands of messages."""

from pathlib import Path

import pytest

from interop import foreign
from interop.crowd import Share
from interop.mass import NACK_EACH, Stage, play
from support.broker_process import BrokerProcess

SHARES = (Share("python", 6, 4), Share("node", 6, 4), Share("python", 6, 4), Share("node", 6, 4))


@pytest.mark.parametrize(
    "stage",
    [
        Stage("FIFO quiet", 2_000, fifo=True, timeout_s=100),
        Stage("attempts fail", 4_000, failing=True, timeout_s=100),
    ],
    ids=lambda stage: stage.name.replace(" ", "-"),
)
def test_many_consumers_in_one_group(tmp_path: Path, stage: Stage) -> None:
    try:
        foreign.command("node")
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    with BrokerProcess(tmp_path / "data") as broker:
        outcome = play(stage, tmp_path, broker.start(), SHARES)
    assert not any(outcome.wrong.values()), outcome
    # A first attempt in an answer that its client gave up, on a busy machine, is not told.
    failing = stage.messages // NACK_EACH if stage.failing else 0
    assert failing * 0.9 <= outcome.refused <= failing
