"""`latermq serve` with `[replication]`: two brokers, a Kafka, and the owner is killed."""

from pathlib import Path

import pytest

from support import wire_requests
from support.broker_process import BrokerProcess
from support.kafka.cluster import KafkaCluster
from support.wire_client import WireClient, require_ok

COUNT = 40


@pytest.fixture
def config(kafka: KafkaCluster, name: str) -> str:
    return f"""
[replication]
kafka = "{kafka.bootstrap}"
cluster = "{name}"
replicas = 1
replicas_min = 1
[store]
segment_bytes = 17825792
"""


def test_a_standby_serves_what_the_killed_owner_acknowledged(tmp_path: Path, config: str) -> None:
    ids: set[str] = set()
    with BrokerProcess(tmp_path / "a", config=config) as a:
        a.start()
        with BrokerProcess(tmp_path / "b", config=config) as b:
            b.spawn()
            with WireClient(a.endpoint) as client:
                for number in range(COUNT):
                    message = wire_requests.message("orders", b"%d" % number)
                    require_ok(client.send(message))
                    ids.add(message.system_properties.message_id)
            a.kill()
            b.wait_ready()
            received: list[str] = []
            with WireClient(b.endpoint) as client:
                while len(received) < COUNT:
                    got = client.receive("orders", "billing", wait_ms=1_000).messages
                    handles = [each.system_properties.receipt_handle for each in got]
                    if handles:
                        require_ok(client.ack("orders", "billing", *handles))
                    received += [each.system_properties.message_id for each in got]
            assert set(received) == ids
            assert len(received) == COUNT
            assert b.terminate().code == 0
