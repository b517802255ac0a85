"""A scripted broker and a client of it, for tests in virtual time."""

from collections.abc import Callable

import pytest

from latermq._values.endpoints import Endpoints
from latermq.client import Client
from support.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker()


@pytest.fixture
def connect(broker: ScriptedBroker) -> Callable[..., Client]:
    def make(**options: object) -> Client:
        endpoints = Endpoints.parse("127.0.0.1:8081")
        return Client(endpoints, transport=broker.connect, **options)  # type: ignore[arg-type]

    return make
