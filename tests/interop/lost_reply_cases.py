"""A reply that its push consumer never got, as behind a load balancer, in any language.

Collected as `client_cases`; its broker's leases are short. The client lives on, so the broker
renews what it holds: but not what was in that reply. Who asks again with the same attempt id gets
it at once; who does not (Java), when the lease ends, as the next attempt.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from interop.client_cases import CONFIG as CLIENT_CONFIG
from interop.client_cases import Line
from interop.fifo_cases import FifoLine, fifo_group
from interop.lite_cases import BUSY_S, LiteLine
from interop.official import text
from support.lossy_relay import LossyRelay
from support.machine import patient
from support.wire_client import WireClient

LEASE_MS: Final = int(patient(4_000))
CONFIG: Final = f"{CLIENT_CONFIG}[delivery]\nauto_renew_lease_ms = {LEASE_MS}\n"
LOST: Final = "lost " * 5_000  # more than all else that is on its connection meanwhile
COMES_S: Final = 30.0


@pytest.fixture
def relay(broker: Any) -> Iterator[LossyRelay]:
    with LossyRelay(broker.endpoint) as relay:
        yield relay


def bodies(line: Line, consumer: str) -> list[str]:
    return [text(one).split()[0] for one in line.official.consumed(consumer)]


def lose_one(line: Line, relay: LossyRelay, consumer: str, **fields: Any) -> None:
    """Lose the reply with a message; it comes again, once, and what is sent later comes, too."""
    relay.lose(len(LOST))
    line.send(LOST, **fields)
    relay.wait_lost(patient(COMES_S))
    official = line.official
    official.wait_for(
        lambda: "lost" in bodies(line, consumer), "the message of the lost reply", COMES_S
    )
    line.send("later", **fields)
    official.wait_for(lambda: "later" in bodies(line, consumer), "what was sent later", COMES_S)
    consumed = official.consumed(consumer)
    assert bodies(line, consumer) == ["first", "lost", "later"]
    assert consumed[1]["attempt"] in (1, 2)
    official.call("shutdown", name=consumer)


class LostReplyCases:
    def test_lost_reply_of_a_push_consumer(self, line: Line, relay: LossyRelay) -> None:
        line.endpoint = relay.endpoint
        consumer = line.push()
        line.send("first")
        line.official.wait_consumed(consumer, 1)
        lose_one(line, relay, consumer)

    def test_lost_reply_of_a_fifo_push_consumer(
        self, fifo: FifoLine, relay: LossyRelay, wire: WireClient
    ) -> None:
        fifo_group(wire, fifo.topic)
        fifo.endpoint = relay.endpoint
        consumer = fifo.push()
        fifo.send("first", message_group="a")
        fifo.official.wait_consumed(consumer, 1)
        lose_one(fifo, relay, consumer, message_group="a")

    def test_lost_reply_of_a_lite_push_consumer(self, lite: LiteLine, relay: LossyRelay) -> None:
        lite.endpoint = relay.endpoint
        consumer = lite.lite_push("a")
        lite.send("first", lite_topic="a")
        lite.official.wait_consumed(consumer, 1, BUSY_S)
        lose_one(lite, relay, consumer, lite_topic="a")
