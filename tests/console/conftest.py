"""One browser, one broker with a past, one console in front of it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support import console_story as shop
from support.broker_process import BrokerProcess
from support.browser import aside, console_process, executable, launched
from support.prometheus_api import PrometheusApi

EXECUTABLE = executable()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if EXECUTABLE is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or set CHROMIUM")
    with launched(EXECUTABLE) as browser:
        yield browser


@pytest.fixture(scope="session")
def broker(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("browser") / "data") as broker:
        yield broker.start()


@pytest.fixture(scope="session")
def url(broker: BrokerProcess) -> Iterator[str]:
    # The console looks before the letters come: so it sees them come.
    with PrometheusApi() as api:
        aside(api.know(broker.endpoint))
        with console_process(broker.endpoint, "--prometheus", api.url) as url:
            yield url


@pytest.fixture(scope="session")
def told(broker: BrokerProcess) -> str:
    """The broker's address, when its past has happened."""
    aside(shop.tell(broker.endpoint, comma=30, slow=4, expired=2, fine=4))
    aside(shop.make_schedule(broker.endpoint, "reports", "reminders", cron="0 0 29 2 *"))
    return broker.endpoint
