"""One broker and one official client process for each module; names of their own for each test."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.official import OfficialClient
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

# An empty long poll may end after 100 ms, so that no test has to wait 5 s for nothing.
CONFIG = "[server]\npolling_ms_min = 100\n"
NAME_CHARACTERS_MAX = 60  # C++ refuses more than 64, and tests add some


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module's directory; it outlives the tests, with all logs."""
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(room / "data", config=CONFIG) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def official(room: Path) -> Iterator[OfficialClient]:
    with OfficialClient(room / "official") as client:
        yield client


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.endpoint) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic, group and client name that no other test uses."""
    whole = re.sub(r"\W", "_", request.node.name)
    if len(whole) <= NAME_CHARACTERS_MAX:
        return whole
    return f"{whole[: NAME_CHARACTERS_MAX - 9]}_{zlib.crc32(whole.encode()):08x}"
