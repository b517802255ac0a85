"""Transactions and recall, as an official client of any language must be able to use them.

Collected as `client_cases` are. Its broker asks for the first time after 1.5 s, and so often.
"""

import time
from typing import Any

import pytest

from interop.client_cases import Line
from interop.official import OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import pending_pb2
from support.broker_process import BrokerProcess
from support.wire_client import WireClient, now_ms

Code = definition_pb2.Code


class TransactionLine(Line):
    """A line whose producer begins transactions, and answers for them as `verdicts` says."""

    def second_producer(self, verdicts: dict[str, str]) -> str:
        """Node.js gives up after 3 s while its process waits longer to connect again: once more."""
        name = f"{self.topic}-second"
        fields = {"name": name, "endpoint": self.endpoint, "topics": [self.topic]}
        self._at_last("producer", **fields, verdicts=verdicts)
        return name

    def _at_last(self, do: str, **fields: Any) -> None:
        """Until the broker, which is coming up again, can be reached; what it refuses is final."""
        until = time.monotonic() + 30
        while True:
            try:
                self.official.call(do, **fields)
            except OfficialError as error:
                refused = (error.code or 0) >= Code.OK  # below are those of gRPC (Node.js)
                if refused or time.monotonic() > until:
                    raise
                time.sleep(0.5)
            else:
                return

    def begin(self, body: str) -> str:
        """A half message; the reference of its transaction."""
        begun = self.official.call("begin", name=self.topic, topic=self.topic, text=body)
        return str(begun["ref"])

    def end(self, ref: str, resolution: str) -> None:
        self._at_last("end", name=self.topic, ref=ref, resolution=resolution)

    def checked(self) -> list[tuple[str, str]]:
        """(producer, body) of every question the clients got so far."""
        return [
            (event["producer"], event["text"])
            for event in list(self.official.events)
            if event["event"] == "checked" and event["topic"] == self.topic
        ]


@pytest.fixture
def verdicts() -> dict[str, str]:
    """What the producer says of a body's transaction when it is asked; nothing: unknown."""
    return {"paid": "commit", "broke": "rollback"}


@pytest.fixture
def tx(official: Any, broker: Any, name: str, verdicts: dict[str, str]) -> TransactionLine:
    return TransactionLine(official, broker.endpoint, name, verdicts=verdicts)


class TransactionCases:
    """One case for each thing."""

    def test_end_transaction_commit_and_rollback(
        self, tx: TransactionLine, wire: WireClient
    ) -> None:
        """Seen by nobody before its commit, never after its rollback; the type stays hidden."""
        kept, dropped = tx.begin("kept"), tx.begin("dropped")
        assert not wire.receive(tx.topic, tx.topic, wait_ms=300).messages
        tx.end(dropped, "rollback")
        tx.end(kept, "commit")
        consumer = tx.simple()
        message = tx.receive_one(consumer)
        assert (text(message), message["attempt"]) == ("kept", 1)
        tx.ack(consumer, message)
        assert not wire.receive(tx.topic, tx.topic, wait_ms=300).messages

    def test_recover_orphaned_transaction(self, tx: TransactionLine) -> None:
        """Its producer never says how it ended, until it is asked; "unknown" is asked again."""
        for body in ("paid", "broke", "odd"):
            tx.begin(body)
        consumer = tx.simple()
        message = tx.receive_one(consumer)
        assert text(message) == "paid"
        tx.ack(consumer, message)
        tx.official.wait_for(
            lambda: len([one for one in tx.checked() if one[1] == "odd"]) >= 2, "two checks of odd"
        )
        asked = [body for _, body in tx.checked()]
        assert (asked.count("paid"), asked.count("broke")) == (1, 1)

    def test_recover_orphaned_transaction_by_another_producer(self, tx: TransactionLine) -> None:
        """The one that sent it is gone; another that publishes the topic answers for it."""
        tx.begin("left behind")
        tx.official.call("shutdown", name=tx.topic)
        second = tx.second_producer({"left behind": "commit"})
        consumer = tx.simple()
        message = tx.receive_one(consumer)
        assert text(message) == "left behind"
        assert tx.checked() == [(second, "left behind")]
        tx.ack(consumer, message)

    def test_half_messages_outlive_the_broker(
        self, tx: TransactionLine, broker: BrokerProcess, wire: WireClient
    ) -> None:
        """Killed between half and end: the end it was going to get still counts."""
        late = tx.begin("late")
        tx.begin("paid")
        broker.kill()
        broker.start()
        tx.second_producer({"paid": "commit"})  # not every client opens its stream again soon
        consumer = tx.simple()
        message = tx.receive_one(consumer)
        assert text(message) == "paid"
        tx.ack(consumer, message)
        tx.end(late, "commit")
        message = tx.receive_one(consumer)
        assert text(message) == "late"
        tx.ack(consumer, message)
        request = pending_pb2.ListPendingRequest(
            filter=pending_pb2.PendingFilter(topic=tx.topic, kind=pending_pb2.HALF)
        )
        assert not wire.call(wire.pending.ListPending, request).messages

    def test_recall_message(self, tx: TransactionLine, wire: WireClient) -> None:
        due_ms = now_ms() + 2_000
        recalled, kept = (tx.send(body, deliver_at_ms=due_ms) for body in ("recalled", "kept"))
        fields = {"name": tx.topic, "topic": tx.topic, "recall_handle": recalled["recall_handle"]}
        assert tx.official.call("recall", **fields) == recalled["message_id"]
        with pytest.raises(OfficialError) as refusal:
            tx.official.call("recall", **fields)
        assert refusal.value.code in (Code.NOT_FOUND, None)
        consumer = tx.simple()
        message = tx.receive_one(consumer)
        assert (text(message), message["message_id"]) == ("kept", kept["message_id"])
        tx.ack(consumer, message)
        fields["recall_handle"] = kept["recall_handle"]
        with pytest.raises(OfficialError):  # it was delivered
            tx.official.call("recall", **fields)
        time.sleep(max(0, due_ms + 500 - now_ms()) / 1_000)
        assert not wire.receive(tx.topic, tx.topic, wait_ms=300).messages
