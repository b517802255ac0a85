"""The official Node.js client (npm `rocketmq-client-nodejs`) against a broker process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign
from interop.client_cases import ClientCases
from interop.client_cases import broker as broker
from interop.client_cases import line as line
from interop.official import OfficialClient

INSTALL_TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def official(room: Path) -> Iterator[OfficialClient]:
    try:
        command = foreign.command("node", INSTALL_TIMEOUT_S)
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    with OfficialClient(room / "node", command) as client:
        yield client


class TestNodeClient(ClientCases):
    pass
