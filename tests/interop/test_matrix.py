"""Every official client against a broker process: the cells of docs/compatibility.md.

LATERMQ_INTEROP_CLIENTS names the clients to run (`go,java-tls`); Python and Node.js unless it does.
The others need toolchains and hundreds of packages that `make setup` does not install; then a
toolchain that is missing is a skip, a build that fails too.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign, matrix
from interop.client_cases import CONFIG, ClientCases
from interop.client_cases import line as line
from interop.fifo_cases import FifoCases
from interop.fifo_cases import fifo as fifo
from interop.official import SCRIPT, OfficialClient
from interop.transaction_cases import TransactionCases
from interop.transaction_cases import tx as tx
from interop.transaction_cases import verdicts as verdicts
from support.broker_process import BrokerProcess

ASKED = os.environ.get("LATERMQ_INTEROP_CLIENTS", ",".join(matrix.IN_CI)).split(",")

pytestmark = pytest.mark.timeout(foreign.BUILD_TIMEOUT_S)  # the first one waits for the build


@pytest.fixture(scope="module", params=ASKED)
def run(request: pytest.FixtureRequest) -> str:
    """A client's name, with TLS or without."""
    name: str = request.param
    if name not in matrix.EVERY_RUN:
        pytest.fail(f"{name}: none of {', '.join(matrix.EVERY_RUN)}")
    return name


@pytest.fixture(scope="module")
def broker(run: str, room: Path) -> Iterator[BrokerProcess]:
    """With TLS it serves clear text on the same port, for what a test asks by itself."""
    config = CONFIG + ("[tls]\nenabled = true\n" if run.endswith(matrix.TLS) else "")
    with BrokerProcess(room / run / "data", config=config) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def official(run: str, room: Path, broker: BrokerProcess) -> Iterator[OfficialClient]:
    """Go and Java take any certificate; Python and Node.js are given the broker's to trust."""
    language, _, tls = run.partition("-")
    command = [sys.executable, str(SCRIPT)]
    if language != "python":
        try:
            command = foreign.command(language)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
    settings = [f"LATERMQ_CLIENT_TLS={int(bool(tls))}"]
    if tls:
        certificate = broker.data_dir / "tls" / "certificate.pem"
        settings.append(f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={certificate}")
    with OfficialClient(room / run, ["env", *settings, *command]) as client:
        yield client


@pytest.fixture(autouse=True)
def expected(request: pytest.FixtureRequest, run: str) -> None:
    """Skip what the client does not have; what it does wrong has to go on going wrong."""
    test: str = request.node.originalname
    client = matrix.client_of(run)
    why = client.lacks.get(matrix.capability_of(test))
    if why:
        pytest.skip(f"{matrix.NOT_IN_CLIENT}: {why}")
    if test in client.own_faults:
        fault = client.own_faults[test]
        request.applymarker(pytest.mark.xfail(reason=fault, strict=True))


class TestMatrix(ClientCases, TransactionCases, FifoCases):
    pass
