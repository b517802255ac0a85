"""Appends whose producer fails for good: poll raises, and no report comes any more."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from latermq_broker.errors import FencedError, LogUnavailableError, StoreError
from latermq_broker.replication.entry import UNTOLD
from latermq_broker.replication.kafka_log import KafkaWriter


class Sent:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class Broken:
    """A producer that reports the first append, and then fails."""

    def __init__(self, code: int, offset: int) -> None:
        self._code = code
        self._offset = offset
        self._calls: list[Callable[[Any, Any], None]] = []
        self._some = threading.Event()

    def produce(self, *_: Any, on_delivery: Callable[[Any, Any], None], **__: Any) -> None:
        self._calls.append(on_delivery)
        if len(self._calls) == 3:
            self._some.set()

    def poll(self, _: float) -> None:
        self._some.wait()
        if len(self._calls) == 3:
            self._calls.pop(0)(None, Sent(self._offset))
            return
        raise KafkaException(KafkaError(self._code, "gone", True))


@pytest.mark.parametrize(
    ("code", "offset", "kind"),
    [
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, 7, LogUnavailableError),
        (KafkaError._FENCED, -1001, FencedError),
    ],
)
async def test_all_who_wait_are_told(code: int, offset: int, kind: type[StoreError]) -> None:
    made: list[Broken] = []

    def make(_: dict[str, Any]) -> Broken:
        made.append(Broken(code, offset))
        return made[-1]

    writer = KafkaWriter({}, "topic", 0, make)
    first, second, third = (writer.append(b"x") for _ in range(3))
    async with asyncio.timeout(30):
        assert await first == max(offset, UNTOLD)
        for later in (second, third):
            with pytest.raises(kind, match="gone"):
                await later
        await writer.settled()
        again = [writer.append(b"y") for _ in range(3)]  # with another producer
        assert await again[0] == max(offset, UNTOLD)
        await writer.close()
    assert len(made) == 2
