"""One attempt of a retried message costs the log at most 192 bytes, whatever its body."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.official import OfficialClient, text
from latermq_broker.store.files import RealFiles
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.record import Record, RecordType
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.wire_client import WireClient, require_ok

ATTEMPT_BYTES_MAX = 192
BODY = b"r" * (1 << 20)
# What the log writes for itself when it is idle or closes a segment.
HOUSEKEEPING = (RecordType.MARK, RecordType.BLANK)


class LogGrowth:
    """What a broker's log grew by, read from its files while it runs."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._seen = len(self._records())

    def take(self) -> list[Record]:
        """The records since the last look, the log's own left out."""
        records = self._records()
        fresh = records[self._seen :]
        self._seen = len(records)
        return [record for record in fresh if record.type not in HOUSEKEEPING]

    def _records(self) -> list[Record]:
        return list(scan_directory(self._data_dir, RealFiles()))


def cost(records: list[Record]) -> int:
    """Bytes in the file: headers, payloads and padding."""
    return sum(record.next_position - record.position for record in records)


def describe(records: list[Record]) -> str:
    return ", ".join(f"{record.type.name} {record.length}" for record in records)


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    """Small segments: the log is read over and over."""
    with BrokerProcess(room / "data", config="[store]\nsegment_bytes = 33554432\n") as broker:
        yield broker.start()


@pytest.fixture
def growth(broker: BrokerProcess, wire: WireClient, name: str) -> LogGrowth:
    """A message of 1 MiB waits in the topic; the group and its progress exist already."""
    wire.create_group(name, max_attempts=10, ladder_ms=(100,))
    require_ok(wire.send(wire_requests.message(name, b"first")))
    wire.take(name, name, 1, timeout_s=10)
    require_ok(wire.send(wire_requests.message(name, BODY, keys=["key"], properties={"p": "v"})))
    return LogGrowth(broker.data_dir)


@pytest.mark.parametrize("way", ["nack", "expiry", "expiry of an extended lease"])
def test_an_attempt_costs_at_most_192_bytes(
    wire: WireClient, name: str, growth: LogGrowth, way: str, record_property: Any
) -> None:
    """From one delivery to the next: how attempt 2, 3, 4 and 5 came about."""
    lease: dict[str, Any] = {"auto_renew": way == "nack", "invisible_ms": 1_000}
    got = wire.receive(name, name, **lease)
    growth.take()
    costs = []
    for attempt in (2, 3, 4, 5):
        [message] = got.messages
        assert bytes(message.body) == BODY
        handle = message.system_properties.receipt_handle
        if way != "expiry":
            require_ok(wire.change_invisible(name, name, handle, 500))
        got = wire.receive(name, name, **lease)
        assert [one.system_properties.delivery_attempt for one in got.messages] == [attempt]
        records = growth.take()
        extension = sum(one.length for one in records if one.type is RecordType.EXTEND)
        assert (extension > 0) == (way == "expiry of an extended lease")
        assert extension <= 96, describe(records)
        costs.append(cost(records))
        assert costs[-1] - extension <= ATTEMPT_BYTES_MAX, describe(records)
    record_property("bytes", costs)
    wire.ack(name, name, got.messages[0].system_properties.receipt_handle)


def test_a_dead_letter_is_one_copy(wire: WireClient, name: str, growth: LogGrowth) -> None:
    """A dead letter outlives its topic's segments: it is written whole, once, with its history."""
    handle = wire.receive(name, name).messages[0].system_properties.receipt_handle
    growth.take()
    assert wire.forward(name, name, handle).code == definition_pb2.Code.OK
    records = growth.take()
    assert cost(records) <= len(BODY) + 1_024, describe(records)
    [letter] = wire.receive(f"%DLQ%{name}", f"{name}-reader").messages
    assert bytes(letter.body) == BODY


def test_the_official_push_consumers_retries_cost_as_little(
    official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str
) -> None:
    """Three failures of the official client, from the first delivery to the last."""
    wire.create_group(name, max_attempts=10, ladder_ms=(1_000,))
    body = "x" * (1 << 20)
    require_ok(wire.send(wire_requests.message(name, body.encode())))
    official.call(
        "push",
        name=name,
        endpoint=broker.endpoint,
        group=name,
        topics={name: "*"},
        failures={body[:200]: 3},
    )
    official.wait_consumed(name, 1)
    growth = LogGrowth(broker.data_dir)  # attempt 1's lease is written, its nack may be
    consumed = official.wait_consumed(name, 4)
    time.sleep(0.3)  # the acknowledgement
    records = growth.take()
    official.call("shutdown", name=name)
    assert [one["attempt"] for one in consumed] == [1, 2, 3, 4]
    assert text(consumed[-1]).startswith("xxx")
    assert consumed[-1]["body_bytes"] == len(body)
    assert cost(records) <= 4 * ATTEMPT_BYTES_MAX, describe(records)
