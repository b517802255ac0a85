"""Machines that stand by for each other: each has a configuration and a process for each shard."""

import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from support.cluster_process import ClusterProcess, free_ports
from support.kafka.cluster import HOST, KafkaCluster
from support.machine import patient

SOON_S: Final = patient(60)


class Site:
    """
    Args:
        more: text for every machine's configuration, that of `[replication]` first.
    """

    def __init__(
        self, path: Path, kafka: KafkaCluster, name: str, shards: int, count: int, more: str
    ) -> None:
        taken: set[int] = set()
        ports = [row_of_ports(shards, taken) for _ in range(count)]
        self.shards = [[f"{HOST}:{port + shard}" for port in ports] for shard in range(shards)]
        self.endpoint = ";".join(self.shards[0])
        self.machines = [
            ClusterProcess(
                path / str(machine),
                shards,
                listen=address,
                config=f"""
[cluster]
machines = {json.dumps(self.shards[0])}
machine = {machine}
[replication]
kafka = "{kafka.bootstrap}"
cluster = "{name}"
{more}""",
            )
            for machine, address in enumerate(self.shards[0])
        ]

    async def owners(self) -> list[str]:
        """Wait until each shard has one; where their ports are open."""
        found: list[str] = []
        async with asyncio.timeout(SOON_S):
            for addresses in self.shards:
                while not (now := [each for each in addresses if is_open(each)]):
                    await asyncio.sleep(0.05)
                found += now
        return found


def row_of_ports(count: int, taken: set[int]) -> int:
    """Find the first of some ports that nobody listens on; add them to what is taken."""
    while True:
        [first] = free_ports(1)
        row = range(first, first + count)
        with suppress(OSError):
            for port in row[1:]:
                with socket.socket() as probe:
                    probe.bind((HOST, port))
            if taken.isdisjoint(row):
                taken.update(row)
                return first


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
