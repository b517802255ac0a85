"""What makes a broker work for nothing, on a real one: it is ended, counted and forgotten.

`tests/unit/transport/test_http2_abuse.py` has every case in memory; here are sockets, TLS, and the
process's own memory.
"""

import asyncio
import os
import random
from collections.abc import Iterator

import pytest

from latermq_proto.latermq.v1 import broker_pb2
from soak.watch import own_mib
from support import hostile
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

CONFIG = """
[http2]
hello_ms_max = 500
header_block_ms_max = 500
stall_ms_max = 500
[tls]
enabled = true
handshake_ms_max = 500
"""
CALM = "ENHANCE_YOUR_CALM"
OWN_TASKS = 3  # the program's, retention's and the index's
TIMES = 5
GROWTH_MIB_MAX = 6.0

# What the client sees, and what the broker counts.
CASES = {
    **{name: (run, CALM, "fault", CALM) for name, run in hostile.FLOODS.items()},
    "slow hello": (hostile.slow_hello, "PROTOCOL_ERROR", "fault", "PROTOCOL_ERROR"),
    "slow headers": (hostile.slow_headers, CALM, "fault", CALM),
    "zero window": (hostile.zero_window, "CANCEL", "", ""),
    "TLS garbage": (hostile.handshake_garbage, "closed", "connection", "SSLError"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean":
        pytest.skip("limits of the lean transport")
    pytest.importorskip("cryptography")
    with BrokerProcess(tmp_path_factory.mktemp("abuse") / "data", config=CONFIG) as process:
        yield process.start()
        assert process.terminate().code == 0


async def alone(wire: WireClient) -> broker_pb2.BrokerTransport:
    """The broker's counts, when nothing is open but the connection and the call that ask."""
    async with asyncio.timeout(patient(10)):
        while True:
            answer = wire.call(wire.brokers.GetBroker, broker_pb2.GetBrokerRequest())
            seen: broker_pb2.BrokerTransport = answer.broker.transport
            if (seen.connections_open, seen.calls_open, seen.tasks) == (1, 1, OWN_TASKS):
                return seen
            await asyncio.sleep(0.05)


def counted(seen: broker_pb2.BrokerTransport, kind: str, reason: str) -> int:
    return sum(
        each.count for each in seen.others if each.kind == kind and each.reason.startswith(reason)
    )


@pytest.mark.parametrize("name", CASES)
async def test_it_is_ended_counted_and_forgotten(name: str, broker: BrokerProcess) -> None:
    run, said, kind, reason = CASES[name]
    # A client that still writes when the broker closes may be told by a reset alone: what was on
    # its way to it is gone then. The broker's count has the reason.
    told = {said, "closed"} if name in hostile.FLOODS else {said}
    target, chance = hostile.Target.of(broker.endpoint, "abused"), random.Random(1)
    with WireClient(broker.endpoint) as wire:
        assert await run(target, chance) in told  # the first fills what is kept anyway
        before, memory_mib = await alone(wire), own_mib(broker.pid)
        for _ in range(TIMES):
            assert await run(target, chance) in told
        seen = await alone(wire)
        if kind:
            assert counted(seen, kind, reason) == counted(before, kind, reason) + TIMES
        assert own_mib(broker.pid) - memory_mib < GROWTH_MIB_MAX
        assert seen.deadline_timers <= 1  # GetBroker's own
