"""What changes under an official client of any language: its filter, or the way to it.

LATERMQ_INTEROP_CLIENTS names the clients, as for the matrix; what one lacks is skipped.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign, matrix
from interop.changed_filter_cases import ChangedFilterCases
from interop.client_cases import CONFIG
from interop.client_cases import line as line
from interop.fifo_cases import fifo as fifo
from interop.lite_cases import lite as lite
from interop.lost_reply_cases import CONFIG as LOST_REPLY_CONFIG
from interop.lost_reply_cases import LostReplyCases
from interop.lost_reply_cases import relay as relay
from interop.official import OfficialClient
from interop.test_matrix import command, tls_of
from interop.test_matrix import official as official
from interop.test_matrix import run as run
from support.broker_process import BrokerProcess

PUSH = "PushConsumer"
LITE = "lite topics: LitePushConsumer"
NEEDS = {
    "test_changed_filter_of_a_push_consumer": PUSH,
    "test_lost_reply_of_a_push_consumer": PUSH,
    "test_lost_reply_of_a_fifo_push_consumer": PUSH,
    "test_lost_reply_of_a_lite_push_consumer": LITE,
}

pytestmark = pytest.mark.timeout(foreign.BUILD_S_MAX)  # the first one waits for the build


@pytest.fixture(autouse=True)
def needed(request: pytest.FixtureRequest, run: str) -> None:
    """Skip a test of what the client does not have."""
    need = NEEDS.get(request.node.originalname, "")
    if need in matrix.client_of(run).lacks:
        pytest.skip(matrix.client_of(run).lacks[need])


@pytest.fixture(scope="module")
def broker(run: str, room: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(room / run / "data", config=CONFIG + tls_of(run)) as broker:
        yield broker.start()


class TestChangedFilter(ChangedFilterCases):
    pass


class TestLostReply(LostReplyCases):
    """Against a broker of their own, whose leases end soon."""

    @pytest.fixture
    def broker(self, run: str, tmp_path: Path) -> Iterator[BrokerProcess]:
        config = LOST_REPLY_CONFIG + tls_of(run)
        with BrokerProcess(tmp_path / "data", config=config) as broker:
            yield broker.start()

    @pytest.fixture
    def official(self, run: str, tmp_path: Path, broker: BrokerProcess) -> Iterator[OfficialClient]:
        with OfficialClient(tmp_path / "client", command(run, broker)) as client:
            yield client
