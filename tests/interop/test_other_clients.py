"""The official Go and Java clients against a broker process, for who asks for it.

They need toolchains and hundreds of packages that `make setup` does not install, so they run only
with LATERMQ_INTEROP_ALL=1; then a toolchain that is missing is a skip, a build that fails too.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign
from interop.client_cases import ClientCases
from interop.client_cases import broker as broker
from interop.client_cases import line as line
from interop.official import OfficialClient

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("LATERMQ_INTEROP_ALL") != "1", reason="LATERMQ_INTEROP_ALL=1 runs these"
    ),
    pytest.mark.timeout(foreign.BUILD_TIMEOUT_S),  # the first one waits for the build
]


@pytest.fixture(scope="module", params=["go", "java"])
def official(request: pytest.FixtureRequest, room: Path) -> Iterator[OfficialClient]:
    try:
        command = foreign.command(request.param)
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    with OfficialClient(room / request.param, command) as client:
        yield client


class TestOtherClients(ClientCases):
    pass
