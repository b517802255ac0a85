"""What a broker and the kernel say of it while it is soaked, and whether that is flat."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import grpc.aio

from latermq_proto.latermq.v1 import broker_pb2, broker_pb2_grpc
from support import wire_requests
from support.machine import patient

SAMPLE_S: Final = 1.0
QUIET_S_MAX: Final = patient(30.0)
MIB: Final = 1 << 20


class Sample(NamedTuple):
    at_s: float
    own_mib: float
    files: int
    tasks: int
    timers: int
    calls: int
    connections: int
    parked: int


@dataclass
class Watch:
    """One broker process, for as long as it lives."""

    endpoint: str
    pid: int
    samples: list[Sample] = field(default_factory=list)
    last: broker_pb2.Broker = field(default_factory=broker_pb2.Broker)

    async def __aenter__(self) -> "Watch":
        self._channel = grpc.aio.insecure_channel(
            self.endpoint, options=wire_requests.CHANNEL_OPTIONS
        )
        self._stub = broker_pb2_grpc.BrokersStub(self._channel)
        await self.look()  # its own connection is counted from here on
        self.first = await self.look()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def look(self) -> Sample:
        answer = await self._stub.GetBroker(
            broker_pb2.GetBrokerRequest(),
            metadata=wire_requests.metadata("soak@watch@0@x"),
            timeout=patient(10),
            wait_for_ready=True,
        )
        self.last = answer.broker
        seen = answer.broker.transport
        return Sample(
            time.monotonic(), own_mib(self.pid), len(os.listdir(f"/proc/{self.pid}/fd")),
            seen.tasks, seen.deadline_timers, seen.calls_open, seen.connections_open,
            seen.receives_parked,
        )  # fmt: skip

    async def keep_looking(self, each: Callable[[Sample], None] = lambda _: None) -> None:
        """Until it is cancelled."""
        while True:
            sample = await self.look()
            self.samples.append(sample)
            each(sample)
            await asyncio.sleep(SAMPLE_S)

    async def quiet(self) -> list[str]:
        """Wait until no more is open than at first; what is left, if that takes too long."""
        until = time.monotonic() + QUIET_S_MAX
        while (left := self.left(await self.look())) and time.monotonic() < until:
            await asyncio.sleep(0.25)
        return left

    def left(self, now: Sample) -> list[str]:
        first = self.first
        return [
            f"{name}: {found}, at first {wanted}"
            for name, found, wanted in (
                ("calls", now.calls, first.calls),
                ("connections", now.connections, first.connections),
                ("tasks", now.tasks, first.tasks),
                ("deadline timers", now.timers, first.timers),
                ("waiting receives", now.parked, first.parked),
            )
            if found > wanted
        ]


class Slope(NamedTuple):
    """Of resident memory, between the means of the third and the fourth quarter of the samples."""

    mib: float
    minutes: float
    growth_mib: float
    allowed_mib: float

    @property
    def flat(self) -> bool:
        return self.growth_mib <= self.allowed_mib


def slope(samples: Sequence[Sample], per_hour_mib: float, noise_mib: float) -> Slope:
    """`noise_mib`: what two quarters may differ without a reason."""
    half = samples[len(samples) // 2 :]
    before, after = half[: len(half) // 2], half[len(half) // 2 :]
    means = [statistics.fmean(one.own_mib for one in part) for part in (before, after)]
    minutes = (half[-1].at_s - half[0].at_s) / 2 / 60
    allowed = noise_mib + per_hour_mib * minutes / 60
    return Slope(means[1], minutes, means[1] - means[0], allowed)


def own_mib(pid: int) -> float:
    """Tell the resident memory that is the process's own, in MiB.

    Pages of files, the mapped segments first, are the kernel's to take back.
    """
    resident, shared = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / MIB
