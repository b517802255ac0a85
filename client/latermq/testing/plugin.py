"""The pytest plugin: found by its entry point wherever latermq is installed.

Nothing of the client or the broker is loaded before a test asks for a fixture.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from latermq.testing import BrokerProcess, HeldBroker

__all__ = ["latermq_broker", "latermq_time"]


@pytest.fixture
def latermq_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[BrokerProcess]":
    """Give the test a broker process of its own; LATERMQ_ENDPOINT names it meanwhile."""
    from latermq.testing import BrokerProcess

    with BrokerProcess(tmp_path / "latermq") as broker:
        monkeypatch.setenv("LATERMQ_ENDPOINT", broker.endpoint)
        yield broker


@pytest.fixture
def latermq_time() -> "Iterator[HeldBroker]":
    """Give the test a broker in its own event loop, and the clock of both."""
    from latermq.testing import HeldBroker

    broker = HeldBroker()
    try:
        yield broker
    finally:
        broker.close()
