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
from interop.credentials_cases import CONFIG as CREDENTIALS_CONFIG
from interop.credentials_cases import CredentialsCases, SignedIn
from interop.fifo_cases import FifoCases
from interop.fifo_cases import fifo as fifo
from interop.lite_cases import LiteCases
from interop.lite_cases import lite as lite
from interop.official import SCRIPT, OfficialClient
from interop.priority_cases import PriorityCases
from interop.priority_cases import urgent as urgent
from interop.question_cases import QuestionCases
from interop.question_cases import admin as admin
from interop.transaction_cases import TransactionCases
from interop.transaction_cases import tx as tx
from interop.transaction_cases import verdicts as verdicts
from support.broker_process import BrokerProcess

ASKED = os.environ.get("LATERMQ_INTEROP_CLIENTS", ",".join(matrix.IN_CI)).split(",")

pytestmark = pytest.mark.timeout(foreign.BUILD_S_MAX)  # the first one waits for the build


@pytest.fixture(scope="module", params=ASKED)
def run(request: pytest.FixtureRequest) -> str:
    """A client's name, with TLS or without."""
    name: str = request.param
    if name not in matrix.EVERY_RUN:
        pytest.fail(f"{name}: none of {', '.join(matrix.EVERY_RUN)}")
    return name


def tls_of(run: str) -> str:
    return "[tls]\nenabled = true\n" if run.endswith(matrix.TLS) else ""


@pytest.fixture(scope="module")
def broker(run: str, room: Path) -> Iterator[BrokerProcess]:
    """With TLS it serves clear text on the same port, for what a test asks by itself."""
    with BrokerProcess(room / run / "data", config=CONFIG + tls_of(run)) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def guarded(run: str, room: Path) -> Iterator[BrokerProcess]:
    config = CREDENTIALS_CONFIG + tls_of(run)
    with BrokerProcess(room / run / "guarded", config=config) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def official(run: str, room: Path, broker: BrokerProcess) -> Iterator[OfficialClient]:
    with OfficialClient(room / run, command(run, broker)) as client:
        yield client


def command(run: str, broker: BrokerProcess, **environment: str) -> list[str]:
    """Go and Java take any certificate; Python and Node.js are given the broker's to trust."""
    language, _, tls = run.partition("-")
    words = [sys.executable, str(SCRIPT)]
    if language != "python":
        try:
            words = foreign.command(language)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
    environment["LATERMQ_CLIENT_TLS"] = str(int(bool(tls)))
    if tls:
        certificate = broker.data_dir / "tls" / "certificate.pem"
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(certificate)
    return ["env", *(f"{name}={value}" for name, value in environment.items()), *words]


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


class TestMatrix(ClientCases, TransactionCases, FifoCases, PriorityCases, LiteCases, QuestionCases):
    pass


class TestCredentials(CredentialsCases):
    """Against a broker of their own, which asks who calls."""

    @pytest.fixture
    def broker(self, guarded: BrokerProcess) -> BrokerProcess:
        return guarded

    @pytest.fixture
    def signed_in(self, run: str, broker: BrokerProcess, tmp_path: Path) -> SignedIn:
        return lambda key, secret: OfficialClient(
            tmp_path, command(run, broker, TEST_ACCESS_KEY=key, TEST_SECRET_KEY=secret)
        )
