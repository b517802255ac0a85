"""From a broker that was alone to a cluster and back, and what is refused on the way."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.latermq.v1 import topic_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.cluster_process import ClusterProcess
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok


def refused(*words: str, listen: str = "127.0.0.1:0") -> str:
    """What `latermq serve` says before it ends with code 2."""
    command = [sys.executable, "-m", "latermq_broker", "serve", "--listen", listen, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patient(60))
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


def bodies(client: WireClient, topic: str, group: str) -> list[bytes]:
    """What is there for a group now, acknowledged."""
    received: list[bytes] = []
    while messages := client.receive(topic, group, wait_ms=0).messages:
        handles = [message.system_properties.receipt_handle for message in messages]
        require_ok(client.ack(topic, group, *handles))
        received += [message.body for message in messages]
    return received


def test_there_and_back(tmp_path: Path) -> None:
    """Messages, topics with their homes, handles and progress stay; nothing is lost either way."""
    alone, cluster_dir = tmp_path / "alone", tmp_path / "cluster"
    with BrokerProcess(alone) as broker, WireClient(broker.start().endpoint) as client:
        for number in range(4):  # four of them, so that not all have home 0 by their names
            client.create_topic(f"fifo-{number}", type=topic_pb2.FIFO)
            message = wire_requests.message(f"fifo-{number}", b"old")
            message.system_properties.message_group = "g"
            message.system_properties.message_type = v2.FIFO
            require_ok(client.send(message))
        require_ok(client.send(wire_requests.message("orders", b"old")))
        delayed = wire_requests.message("later", b"never", deliver_at_ms=now_ms() + 3_600_000)
        handle = client.send(delayed).entries[0].recall_handle
        assert broker.terminate().code == 0

    assert "move it to a directory named 0" in refused("--shards", "2", "--data-dir", str(alone))
    cluster_dir.mkdir()
    alone.rename(cluster_dir / "0")
    with ClusterProcess(cluster_dir, 2) as cluster:
        cluster.start()
        with WireClient(cluster.endpoints[1]) as client:
            request = service_pb2.RecallMessageRequest(
                topic=wire_requests.resource("later"), recall_handle=handle
            )
            require_ok(client.call(client.messaging.RecallMessage, request))
            for number in range(4):
                names = {q.broker.name for q in client.route(f"fifo-{number}").message_queues}
                assert names == {"shard-00"}, "where its messages are"
                message = wire_requests.message(f"fifo-{number}", b"new")
                message.system_properties.message_group = "g"
                message.system_properties.message_type = v2.FIFO
                require_ok(client.send(message))
            require_ok(client.send(wire_requests.message("orders", b"in shard 1")))
        with WireClient(cluster.endpoints[0]) as client:
            for number in range(4):
                assert bodies(client, f"fifo-{number}", "g") == [b"old", b"new"]
            assert bodies(client, "orders", "g") == [b"old"]
        with WireClient(cluster.endpoints[1]) as client:
            assert bodies(client, "orders", "g") == [b"in shard 1"]
        assert cluster.terminate().code == 0
    assert "is shard 0 of 2, not shard 0 of 3" in refused(
        "--shards", "3", "--data-dir", str(cluster_dir)
    )
    shard = cluster_dir / "0"
    assert "is a shard of a cluster" in refused("--data-dir", str(shard))

    for name in ("SHARD", "CATALOGUE"):
        (shard / name).unlink(missing_ok=True)
    shutil.move(shard, alone)
    with BrokerProcess(alone) as broker, WireClient(broker.start().endpoint) as client:
        assert bodies(client, "orders", "other-group") == [b"old"]
        for number in range(4):
            assert bodies(client, f"fifo-{number}", "g") == [], "its group is where it was"


def test_a_port_that_is_taken_ends_all_that_were_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ("--shards", "2", "--data-dir", str(tmp_path / "data"))
        said = refused(*words, listen=f"127.0.0.1:{port - 1}")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said


def test_shards_whose_supervisor_was_killed_serve_until_another_takes_them(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path / "data", 2) as cluster:
        cluster.start()
        orphans = cluster.pids()
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.wait_end()
        try:
            with WireClient(cluster.endpoints[1]) as client:
                require_ok(client.send(wire_requests.message("orders", b"served")))
            words = ("--shards", "2", "--data-dir", str(tmp_path / "data"))
            assert "is in use by another broker" in refused(*words, listen=cluster.endpoint)
            cluster.start("--replace")
            with WireClient(cluster.endpoints[1]) as client:
                assert bodies(client, "orders", "g") == [b"served"]
        finally:
            for pid in orphans.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
