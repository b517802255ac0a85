"""Where the brokers of a drill run: each place is what a broker's command begins with.

PLAIN      a process like the test's
DISKS      each on a small file system of its own
MACHINES   each in a network namespace, on a bridge with Kafka and the clients
CLOCKS     the second one's wall clock is half a minute behind
VERSIONS   the second one is an older commit
"""

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from support.kafka.cluster import HOST
from support.wall_clock import WallClock

ROOT: Final = Path(__file__).parents[2]
DISK_BYTES: Final = 128 << 20
BEHIND_S: Final = 30
# It has warm standbys, and hands over nothing.
BEFORE: Final = os.environ.get("BEFORE") or "11ccec6"
PACKAGES: Final = ("broker", "client", "proto")


class Place(NamedTuple):
    """One broker's."""

    prefix: tuple[str, ...] = ()
    host: str = HOST
    behind_s: int = 0  # so much is its wall clock


class Network:
    """A bridge: Kafka and the clients have an address on it each, and so has every machine.

    As root. What is dropped on a machine's way to an address, or back, is its own affair.
    """

    def __init__(self) -> None:
        self._bridge = f"lmq{os.getpid()}"
        self._net = f"10.213.{os.getpid() % 256}"
        self._machines = 0
        self.clients, self.kafka = f"{self._net}.1", f"{self._net}.2"

    def __enter__(self) -> Self:
        run("ip", "link", "add", self._bridge, "type", "bridge")
        for address in (self.clients, self.kafka):  # the first is where connections come from
            run("ip", "address", "add", f"{address}/24", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        run("ip", "link", "delete", self._bridge)

    @contextmanager
    def machine(self) -> Iterator[Place]:
        """Have a machine on the bridge."""
        self._machines += 1
        name, host = f"{self._bridge}-{self._machines}", f"{self._net}.{10 + self._machines}"
        inside = ("ip", "netns", "exec", name)
        run("ip", "netns", "add", name)
        try:
            peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "add", name, "master", self._bridge, *peer)
            run("ip", "link", "set", name, "up")
            run(*inside, "ip", "link", "set", "lo", "up")
            run(*inside, "ip", "address", "add", f"{host}/24", "dev", "eth0")
            run(*inside, "ip", "link", "set", "eth0", "up")
            yield Place(inside, host)
        finally:
            run("ip", "netns", "delete", name)


@contextmanager
def dropped(place: Place, way: str, address: str) -> Iterator[None]:
    """Have a machine's packets to an address dropped (OUTPUT), or those from it (INPUT)."""
    rule = (way, "-d" if way == "OUTPUT" else "-s", address, "-j", "DROP")
    run(*place.prefix, "iptables", "-w", "-I", *rule)
    try:
        yield
    finally:
        run(*place.prefix, "iptables", "-w", "-D", *rule)


Places = list[Place]
Setting = Callable[[Network, list[Path]], AbstractContextManager[Places]]


@contextmanager
def plain(_: Network, directories: list[Path]) -> Iterator[Places]:
    yield [Place()] * len(directories)


@contextmanager
def disks(_: Network, directories: list[Path]) -> Iterator[Places]:
    with ExitStack() as stack:
        for directory in directories:
            stack.enter_context(small_disk(directory))
        yield [Place()] * len(directories)


@contextmanager
def machines(network: Network, directories: list[Path]) -> Iterator[Places]:
    with ExitStack() as stack:
        yield [stack.enter_context(network.machine()) for _ in directories]


@contextmanager
def clocks(_: Network, directories: list[Path]) -> Iterator[Places]:
    room = directories[1].with_name(f"{directories[1].name}-clock")
    room.mkdir()
    clock = WallClock(room)
    clock.set_ahead(-BEHIND_S)
    prefix = ("env", *(f"{name}={value}" for name, value in clock.environment.items()))
    behind = Place(prefix, behind_s=BEHIND_S)
    yield [Place(), behind, *[Place()] * (len(directories) - 2)]


@contextmanager
def versions(_: Network, directories: list[Path]) -> Iterator[Places]:
    room = directories[1].with_name(f"{directories[1].name}-before")
    packed = subprocess.run(
        ("git", "archive", BEFORE, *PACKAGES), cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(room, filter="data")
    path = os.pathsep.join(str(room / package) for package in PACKAGES)
    older = Place(("env", f"PYTHONPATH={path}"))
    yield [Place(), older, *[Place()] * (len(directories) - 2)]


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """Have a file system of its own there. Raises CalledProcessError: it cannot be mounted."""
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place))
    try:
        yield
    finally:
        run("umount", str(place))


def run(*words: str) -> None:
    """Raises CalledProcessError, after what the command said."""
    subprocess.run(words, check=True)
