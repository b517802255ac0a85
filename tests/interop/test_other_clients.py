"""The official Go and Java clients against a broker process, for who asks for it.

They need toolchains and hundreds of packages that `make setup` does not install, so they run only
with LATERMQ_INTEROP_ALL=1; then a toolchain that is missing is a skip, a build that fails too.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign
from interop.client_cases import CONFIG, ClientCases
from interop.client_cases import line as line
from interop.official import OfficialClient
from interop.transaction_cases import TransactionCases
from interop.transaction_cases import tx as tx
from interop.transaction_cases import verdicts as verdicts
from support.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("LATERMQ_INTEROP_ALL") != "1", reason="LATERMQ_INTEROP_ALL=1 runs these"
    ),
    pytest.mark.timeout(foreign.BUILD_TIMEOUT_S),  # the first one waits for the build
]


TLS = os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") == "lean"


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    """TLS and clear text on one port, where the transport has TLS."""
    config = CONFIG + ("[tls]\nenabled = true\n" if TLS else "")
    with BrokerProcess(room / "data", config=config) as broker:
        yield broker.start()


@pytest.fixture(scope="module", params=["go", "java", "go-tls", "java-tls"])
def official(request: pytest.FixtureRequest, room: Path) -> Iterator[OfficialClient]:
    """With TLS as these clients have it unless told otherwise, and without."""
    language, _, tls = request.param.partition("-")
    if tls and not TLS:
        pytest.skip("only the lean transport has TLS")
    try:
        command = foreign.command(language)
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    command = ["env", f"LATERMQ_CLIENT_TLS={int(bool(tls))}", *command]
    with OfficialClient(room / request.param, command) as client:
        yield client


class TestOtherClients(ClientCases, TransactionCases):
    pass
