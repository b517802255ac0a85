"""Syncs that take from 5 ms to 5 s: the loop goes on, sends end in time, memory is bounded."""

import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc
import pytest

from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_nursery import Nursery
from support.broker_process import BrokerProcess
from support.wire_client import WireClient, require_ok

TOPIC: Final = "orders"
UNSYNCED_BYTES_MAX: Final = 4 << 20
BODY_BYTES: Final = 60_000
SENDS: Final = 300  # four times what may be unsynced
PROBES: Final = 100
RESIDENT_GROWTH_MAX: Final = 120 << 20
CONFIG: Final = f"""
[store]
segment_bytes = 67108864
unsynced_bytes_max = {UNSYNCED_BYTES_MAX}
"""
Code = definition_pb2.Code


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def send(wire: WireClient, timeout_s: float) -> Any:
    request = wire_requests.send([wire_requests.message(TOPIC, bytes(BODY_BYTES))])
    return wire.messaging.SendMessage.future(
        request, metadata=wire_requests.metadata("slow@1@0@crash"), timeout=timeout_s
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sync_s", [0.005, 0.5, 5.0])
def test_slow_syncs_stop_nobody_but_those_who_wait(tmp_path: Path, sync_s: float) -> None:
    with (
        Nursery(sync_s=sync_s) as nursery,
        BrokerProcess(
            tmp_path / "data", "--flush", "sync", config=CONFIG, nursery=nursery
        ) as broker,
        WireClient(broker.start().endpoint) as wire,
    ):
        wire.create_topic(TOPIC)
        before = resident_bytes(broker.pid)
        waiting = [send(wire, 60) for _ in range(SENDS)]
        took_s = []
        for _ in range(PROBES):  # what needs no disk is answered while syncs run
            began = time.perf_counter()
            wire.route(TOPIC)
            took_s.append(time.perf_counter() - began)
        assert median(took_s) < 0.05
        assert max(took_s) < 1.0
        codes = [answer.result().status.code for answer in waiting]
        assert set(codes) <= {Code.OK, Code.TOO_MANY_REQUESTS}
        if sync_s > 1:
            assert codes.count(Code.TOO_MANY_REQUESTS) > SENDS // 4
            with pytest.raises(grpc.RpcError) as raised:
                send(wire, 1).result()
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert resident_bytes(broker.pid) - before < RESIDENT_GROWTH_MAX
        if sync_s > 1:
            return  # and is killed: an orderly stop takes a sync or two
        require_ok(send(wire, 60).result())
        taken = wire.take(TOPIC, "reader", codes.count(Code.OK) + 1, timeout_s=60)
        assert len(taken) > codes.count(Code.OK)
        assert broker.terminate().code == 0
