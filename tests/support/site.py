"""Machines that stand by for each other: each has a configuration and a process for each shard.

They are at one address with ports of their own; or, if clients know them by one name, at the same
ports of several addresses, which only a file of hosts says the name stands for.
"""

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Final

from support.cluster_process import ClusterProcess, free_ports
from support.kafka.cluster import HOST, KafkaCluster
from support.machine import patient

SOON_S: Final = patient(60)
NAME: Final = "latermq.test"
LOOPBACK: Final = "127.0.0"
# In a mount namespace of its own: the name is nobody else's, and no proxy knows it.
KNOWING: Final = (
    "env", f"no_proxy={NAME}", f"NO_PROXY={NAME}",
    "unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"',
)  # fmt: skip


class Site:
    """
    Args:
        more: text for every machine's configuration, that of `[replication]` first.
        named: clients are told NAME, with a port for each shard; they begin with `prefix`, as root.
    """

    def __init__(
        self, path: Path, kafka: KafkaCluster, name: str, shards: int, count: int, more: str,
        *, named: bool = False,
    ) -> None:  # fmt: skip
        taken: set[int] = set()
        hosts = [f"{LOOPBACK}.{1 + machine}" if named else HOST for machine in range(count)]
        if named:
            ports = [row_of_ports(shards, taken, hosts)] * count
        else:
            ports = [row_of_ports(shards, taken) for _ in range(count)]
        places = list(zip(hosts, ports, strict=True))
        self.shards = [
            [f"{host}:{port + shard}" for host, port in places] for shard in range(shards)
        ]
        self.endpoint = f"{NAME}:{ports[0]}" if named else ";".join(self.shards[0])
        self.prefix: Sequence[str] = ()  # of a command whose process knows the name
        told = ""
        if named:
            self.prefix = (*KNOWING, str(hosts_file(path / "hosts", hosts)))
            told = f"advertise = {json.dumps([f'{NAME}:{ports[0] + n}' for n in range(shards)])}"
        self.machines = [
            ClusterProcess(
                path / str(machine),
                shards,
                listen=address,
                config=f"""
[cluster]
machines = {json.dumps(self.shards[0])}
machine = {machine}
{told}
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


def hosts_file(path: Path, hosts: Sequence[str]) -> Path:
    """Write who NAME is, for a process that sees it in the place of the machine's own file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{HOST} localhost", *(f"{host} {NAME}" for host in hosts)]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def row_of_ports(count: int, taken: set[int], hosts: Sequence[str] = (HOST,)) -> int:
    """Find the first of some ports that nobody listens on; add them to what is taken.

    Args:
        hosts: where they are to be free.
    """
    while True:
        [first] = free_ports(1)
        row = range(first, first + count)
        with suppress(OSError):
            for host, port in product(hosts, row):
                with socket.socket() as probe:
                    probe.bind((host, port))
            if taken.isdisjoint(row):
                taken.update(row)
                return first


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
