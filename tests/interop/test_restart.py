"""The official client goes on over a broker's restart, orderly or not, on the same address."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.conftest import CONFIG
from interop.official import OfficialClient, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient, patient_s
from support.wire_client import WireClient, now_ms, require_ok

COUNT = 120


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        yield broker.start()


@pytest.mark.parametrize("way", ["SIGTERM", "kill -9"])
def test_send_and_receive_go_on_over_a_restart(
    official: OfficialClient, own_broker: BrokerProcess, name: str, way: str
) -> None:
    """A producer and a push consumer work while the broker goes away twice and comes back.

    The producer tries each message until it is acknowledged: a send whose answer was lost may be
    there twice under another message id, but everything acknowledged is there once.
    """
    endpoint = own_broker.endpoint
    official.call("producer", name=name, endpoint=endpoint, topics=[name])
    official.call("send", name=name, topic=name, text="before")
    official.call(
        "push",
        name=f"{name}-push",
        endpoint=endpoint,
        group=name,
        topics={name: "*"},
        failures={},
    )
    official.wait_consumed(f"{name}-push", 1)
    sending = official.begin(
        "send_many", names=[name], topic=name, prefix="n", count=COUNT, pause_ms=20
    )
    for _ in range(2):
        time.sleep(0.15)
        assert not sending.done()
        ended = own_broker.terminate() if way == "SIGTERM" else own_broker.kill()
        assert ended.code == (0 if way == "SIGTERM" else -9), ended.stderr
        own_broker.start()
    sent = set(sending.result(patient(60)))
    failed = [event for event in official.events if event["event"] == "send failed"]
    assert failed, "no send met the broker's absence"
    official.wait_for(
        lambda: sent <= {one["message_id"] for one in official.consumed(f"{name}-push")},
        "every acknowledged message",
        60,
    )
    consumed = official.consumed(f"{name}-push")
    official.call("shutdown", name=f"{name}-push")
    assert {text(one) for one in consumed} == {"before", *(f"n{i}" for i in range(COUNT))}
    attempts: dict[str, int] = {}
    for one in consumed:
        assert one["attempt"] > attempts.get(one["message_id"], 0), one
        attempts[one["message_id"]] = one["attempt"]
    # A message comes again only if its acknowledgement was lost with the broker.
    assert len(consumed) - len(attempts) <= 2 * 32, "far more than was in flight"


def test_what_was_acknowledged_and_delayed_survives_a_kill(
    official: OfficialClient, own_broker: BrokerProcess, name: str
) -> None:
    """Acknowledged: gone. Leased: back when the lease ends, attempt 2. Delayed: at its time."""
    endpoint = own_broker.endpoint
    official.call("producer", name=name, endpoint=endpoint, topics=[name])
    official.call(
        "simple", name=f"{name}-c", endpoint=endpoint, group=name, topics={name: "*"}, wait_s=10
    )
    for body in ("acked", "leased"):
        official.call("send", name=name, topic=name, text=body)
    due_s = int(time.time()) + patient_s(4)
    official.call("send", name=name, topic=name, text="delayed", deliver_at_s=due_s)
    by_text: dict[str, dict[str, Any]] = {}
    while len(by_text) < 2:
        asked_ms = now_ms()
        got = official.call("receive", name=f"{name}-c", invisible_s=patient_s(2))
        by_text.update({text(one): {**one, "asked_ms": asked_ms} for one in got})
    official.call("ack", name=f"{name}-c", ref=by_text["acked"]["ref"])
    own_broker.kill()
    own_broker.start()
    back_ms = now_ms()
    later: list[dict[str, Any]] = []
    with WireClient(endpoint) as wire:
        while len(later) < 2:
            got = wire.receive(name, name, invisible_ms=300_000)
            assert got.messages or now_ms() < back_ms + patient(20_000)
            later += [
                {
                    "body": bytes(one.body).decode(),
                    "attempt": one.system_properties.delivery_attempt,
                    "at_ms": got.at_ms,
                }
                for one in got.messages
            ]
        assert not wire.receive(name, name, wait_ms=100).messages
    leased, delayed = sorted(later, key=lambda one: one["body"], reverse=True)
    assert (leased["body"], leased["attempt"]) == ("leased", 2)
    assert leased["at_ms"] >= by_text["leased"]["asked_ms"] + patient_s(2) * 1_000
    assert (delayed["body"], delayed["attempt"]) == ("delayed", 1)
    assert due_s * 1_000 <= delayed["at_ms"] <= max(due_s * 1_000, back_ms) + patient(1_000)


def test_a_consumer_that_leaves_after_a_restart_frees_what_it_held(
    own_broker: BrokerProcess, name: str
) -> None:
    """The official client does not send its settings again; its leases end with it all the same."""
    endpoint = own_broker.endpoint
    with WireClient(endpoint, "holder@1@0@test") as holder, WireClient(endpoint) as wire:
        wire.route(name)
        require_ok(wire.send(wire_requests.message(name, b"held")))
        holder.announce_push_consumer(name, name)
        assert holder.receive(name, name, auto_renew=True).messages
        own_broker.kill()
        own_broker.start()
        refused = holder.leave(f"{name}-other")  # in which it holds nothing
        assert refused.code == definition_pb2.Code.UNRECOGNIZED_CLIENT_TYPE
        assert holder.leave(name).code == definition_pb2.Code.OK
        [again] = wire.receive(name, name).messages
        assert again.system_properties.delivery_attempt == 2
