"""A real file system filled to the brim: sends are refused with words, all else goes on, and when
consumers have drained it sends go on by themselves. Nothing acknowledged is lost, nothing dies.

Needs the right to mount; without it the tests are skipped and say so.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from latermq.errors import DiskFullError
from latermq.sync import connect
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.ledger import Delivery, Ledger
from support.ledger_sends import Outcome
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok

TOPIC: Final = "orders"
GROUP: Final = "billing"
BODY_BYTES: Final = 30_000
BATCH: Final = 8
RESUME_S_MAX: Final = patient(90)
CONFIG: Final = """
[store]
segment_bytes = 524288
message_body_bytes_max = 65536
checkpoint_interval_ms = 300
sync_interval_ms = 20
[delivery]
receive_batch_max = 32
[server]
polling_ms_min = 50
drain_ms_max = 500
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=patient(60))


def tmpfs(directory: Path, mount: Path) -> None:
    run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount))


def ext4(directory: Path, mount: Path) -> None:
    image = directory / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    run("mount", "-o", "loop", str(image), str(mount))


@pytest.fixture(params=[tmpfs, ext4], ids=["8 MB tmpfs", "64 MB ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    make: Callable[[Path, Path], None] = request.param
    mount = tmp_path / "mount"
    mount.mkdir()
    try:
        make(tmp_path, mount)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{make.__name__} cannot be mounted here: {error}")
    yield mount
    run("umount", str(mount))


class Shop:
    """A producer and a consumer, and the ledger of what they were told."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire
        self.ledger = Ledger({GROUP: 16})

    def send(self) -> definition_pb2.Status:
        messages = [
            wire_requests.message(TOPIC, bytes([n]) * BODY_BYTES, tag="t") for n in range(BATCH)
        ]
        asked = {one.system_properties.message_id: (one.body, 0) for one in messages}
        self.ledger.sending(asked, now_ms())
        answer = self.wire.send(*messages)
        stored = answer.status.code == definition_pb2.Code.OK
        self.ledger.sent(list(asked), Outcome.DONE if stored else Outcome.REFUSED)
        return answer.status

    def fill(self) -> definition_pb2.Status:
        """The refusal."""
        for _ in range(1_000):
            status = self.send()
            if status.code != definition_pb2.Code.OK:
                return status
        raise AssertionError("it is never full")

    def receive(self, count: int) -> list[definition_pb2.Message]:
        asked_ms = now_ms()
        got = self.wire.receive(TOPIC, GROUP, count_max=count, wait_ms=300, invisible_ms=60_000)
        for message in got.messages:
            system = message.system_properties
            delivery = Delivery(
                system.message_id, message.body, system.delivery_attempt, system.receipt_handle,
                asked_ms, got.broker_ms, got.at_ms, 60_000,
            )  # fmt: skip
            self.ledger.delivered(GROUP, delivery)
        return got.messages

    def ack(self, messages: list[definition_pb2.Message]) -> None:
        handles = [one.system_properties.receipt_handle for one in messages]
        require_ok(self.wire.ack(TOPIC, GROUP, *handles))
        for message in messages:
            system = message.system_properties
            self.ledger.acking(GROUP, system.message_id)
            self.ledger.acked(
                GROUP, system.message_id, system.receipt_handle, accepted=True, at_ms=0
            )

    def nack(self, message: definition_pb2.Message) -> None:
        system = message.system_properties
        asked_ms = now_ms()
        require_ok(self.wire.change_invisible(TOPIC, GROUP, system.receipt_handle, 50))
        self.ledger.waits(GROUP, system.message_id, asked_ms, 50)

    def drain(self) -> None:
        empty = 0
        while empty < 3:
            messages = self.receive(32)
            empty = 0 if messages else empty + 1
            if messages:
                self.ack(messages)

    def check(self) -> None:
        self.ledger.check_drained(GROUP, now_ms())
        assert not self.ledger.violations, "\n".join(self.ledger.violations)


@pytest.mark.timeout(300)
def test_it_fills_refuses_drains_and_goes_on(disk: Path) -> None:
    with BrokerProcess(disk / "data", "--flush", "sync", config=CONFIG) as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            wire.create_topic(TOPIC)
            wire.create_group(GROUP, 16)
            shop = Shop(wire)
            for _ in range(2):
                refusal = shop.fill()
                assert refusal.code == definition_pb2.Code.INTERNAL_SERVER_ERROR
                with connect(broker.endpoint) as mq, pytest.raises(DiskFullError) as told:
                    mq.send(TOPIC, bytes(BODY_BYTES))
                assert told.value.stored is False
                assert str(told.value).startswith("disk full: need")
                held = shop.receive(16)
                assert len(held) == 16
                shop.ack(held[:8])
                for message in held[8:]:
                    shop.nack(message)
                assert shop.send().code == definition_pb2.Code.INTERNAL_SERVER_ERROR
                shop.drain()
                shop.check()
                until = time.monotonic() + RESUME_S_MAX
                while shop.send().code != definition_pb2.Code.OK:
                    assert time.monotonic() < until, broker.log_path.read_text()[-3_000:]
                    time.sleep(0.2)
            shop.fill()
        ended = broker.kill()  # on a full disk, too
        assert "Traceback" not in ended.stderr
        broker.start()
        with WireClient(broker.endpoint) as wire:
            shop.wire = wire
            shop.ledger.crashed()
            shop.drain()
            shop.check()
        ended = broker.terminate()
        assert ended.code == 0, ended.stderr
        assert "Traceback" not in ended.stderr
