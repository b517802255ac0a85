"""What only the official Node.js client (npm `rocketmq-client-nodejs`) does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import foreign
from interop.client_cases import MIB, Line
from interop.client_cases import broker as broker
from interop.client_cases import line as line
from interop.official import OfficialClient, text
from support.machine import patient
from support.wire_client import WireClient

INSTALL_TIMEOUT_S = patient(90.0)


@pytest.fixture(scope="module")
def official(room: Path) -> Iterator[OfficialClient]:
    try:
        command = foreign.command("node", INSTALL_TIMEOUT_S)
    except foreign.UnavailableError as reason:
        pytest.skip(str(reason))
    with OfficialClient(room / "node", command) as client:
        yield client


class TestNodeClient:
    def test_send_message_names_a_transaction_by_its_message_id(
        self, line: Line, wire: WireClient
    ) -> None:
        """Its own tests compare the receipt's transaction id with what the consumer is told."""
        plain = line.send("plain")
        assert plain["transaction_id"] == plain["message_id"]
        begun = line.official.call("begin", name=line.topic, topic=line.topic, text="half")
        line.official.call("end", ref=begun["ref"], resolution="commit")
        found = wire.take(line.topic, line.topic, 2, patient(10.0))
        message = {one.body: one for one in found}[b"half"]
        assert message.system_properties.message_id == begun["message_id"]
        assert message.user_properties["__transactionId__"] == begun["transaction_id"]

    def test_receive_message_larger_than_this_client_takes(
        self, line: Line, wire: WireClient
    ) -> None:
        """It ends the call at 4 MiB: that message dies of it, those beside it arrive."""
        wire.create_group(line.topic, max_attempts=2, ladder_ms=(1_000,))
        for body in ("before", "x" * (4 * MIB), "after"):
            line.send(body)
        consumer = line.push()
        consumed = line.official.wait_consumed(consumer, 2)
        assert sorted(text(one) for one in consumed) == ["after", "before"]
        assert {one["attempt"] for one in consumed} == {1}
        [dead] = wire.receive(f"%DLQ%{line.topic}", f"{line.topic}-audit", wait_ms=3_000).messages
        assert len(dead.body) == 4 * MIB
        line.official.call("shutdown", name=consumer)
