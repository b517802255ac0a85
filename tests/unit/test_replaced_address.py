"""`serve --replace` with other addresses: the log names those where nobody listens any more."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from latermq_broker.config.config import Config, MetricsConfig, ServerConfig
from latermq_broker.handover import replacing
from latermq_broker.handover.passing import Port, Predecessor


class Other:
    """A broker that hands over the ports which are asked for as they are."""

    pid = 4711

    def __init__(self) -> None:
        self.ports = {
            replacing.LISTEN: Port("127.0.0.1:8081", "127.0.0.1:8081", ()),
            replacing.METRICS: Port("127.0.0.1:9464", "127.0.0.1:9464", ()),
        }

    def take(self, name: str, wanted: str) -> list[str]:
        return ["a socket"] if wanted == self.ports[name].wanted else []

    def go(self) -> None:
        """It goes."""

    def close(self) -> None:
        """It has gone."""


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Replace a broker on 8081 and 9464 by one that listens here, with its metrics there."""

    def meet(_: Path) -> Other:
        return Other()

    def bound(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(Predecessor, "meet", meet)
    monkeypatch.setattr(replacing, "bound", bound)

    def replace(listen: str, metrics: str) -> None:
        config = Config(server=ServerConfig(listen=listen), metrics=MetricsConfig(listen=metrics))
        opened, _ = replacing.open_replacing(config, tmp_path, lambda: "opened")
        assert opened == "opened"

    return replace


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [
        (record.__dict__["setting"], record.__dict__["old"], record.__dict__["new"])
        for record in caplog.records
        if record.levelno == logging.WARNING
    ]


def test_an_address_that_is_left_is_named(
    replace: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    replace("127.0.0.1:8082", "127.0.0.1:9464")
    assert told(caplog) == [("server.listen", "127.0.0.1:8081", "127.0.0.1:8082")]
    assert "the old address is refused from now on" in caplog.text


def test_metrics_that_are_off_now_are_named(
    replace: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    replace("127.0.0.1:8081", "")
    assert told(caplog) == [("metrics.listen", "127.0.0.1:9464", "")]


def test_the_same_addresses_are_no_matter(
    replace: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    replace("127.0.0.1:8081", "127.0.0.1:9464")
    assert told(caplog) == []
