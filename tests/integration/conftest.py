"""For the tests of the client: one broker for all of them, names of their own for each."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess
from support.wall_clock import WallClock
from support.wire_client import WireClient


@pytest.fixture(scope="session")
def sdk_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Do not stop this one: others use it."""
    with BrokerProcess(tmp_path_factory.mktemp("sdk") / "data") as broker:
        yield broker.start()


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """Set the wall clock of the brokers that start after it: ask for it before them."""
    clock = WallClock(tmp_path)
    clock.preload(monkeypatch)
    return clock


@pytest.fixture
def operator(sdk_broker: BrokerProcess) -> Iterator[WireClient]:
    """Who creates topics and groups, and looks at dead letters."""
    with WireClient(sdk_broker.endpoint, "operator@1@0@test") as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic, and a group, that no other test has."""
    return re.sub(r"\W", "_", f"{request.node.name}_{request.path.stem}")[:100]
