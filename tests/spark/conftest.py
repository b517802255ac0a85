"""One Spark session and one broker for the whole run; names of their own for each test.

A streaming query costs two to four seconds to start, whatever it does: tests share their queries.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import spark_session
from support.broker_process import BrokerProcess
from support.queue_server import QueueServer
from support.wire_client import WireClient

JAVA_MISSING = "Java 17 or 21 is not installed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark leaves its sockets to the garbage collector: that is no failure of ours."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(room: Path) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    session = spark_session.start(room)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(room: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(room / "data") as broker:
        yield broker.start()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.endpoint) as client:
        yield client


@pytest.fixture
def server() -> Iterator[QueueServer]:
    """Not a broker: for losses that a real one does not have on call."""
    with QueueServer() as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and group name that no other test uses."""
    return re.sub(r"\W", "_", request.node.name)[:60]
