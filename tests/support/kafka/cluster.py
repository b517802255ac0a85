"""A real Kafka for tests: KRaft nodes, each broker and controller, from the jars of Maven Central.

No container. The jars are fetched once into `.cache/kafka`; a node is a JVM of a third of a GiB and
ready in two seconds on a calm machine. Nodes may be killed and started again: ports stay.
"""

import contextlib
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

from confluent_kafka.admin import AdminClient, NewTopic

from support import built_once
from support.built_once import UnavailableError as UnavailableError
from support.cluster_process import free_ports
from support.kafka.security import Security
from support.machine import patient

HERE: Final = Path(__file__).parent
JARS: Final = built_once.CACHE / "kafka"
FETCH: Final = ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
READY: Final = re.compile(r"Kafka Server started")
READY_TIMEOUT_S: Final = patient(60.0)
STOP_TIMEOUT_S: Final = patient(30.0)
HOST: Final = "127.0.0.1"
CLUSTER_ID: Final = "TGF0ZXJNUS1LYWZrYS0xMg"
JAVA: Final = (
    "java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)  # fmt: skip
SETTINGS: Final = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.enable": "false",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "num.replica.fetchers": "1",
    "background.threads": "2",
}


def fetch() -> None:
    """Have the jars in the cache. Raises UnavailableError: no Java, no Maven, or no registry."""
    built_once.build(JARS, HERE, ("java", "mvn"), (FETCH,))


class KafkaNode:
    """One JVM on a directory that stays. At most one process at a time."""

    def __init__(self, directory: Path, number: int, settings: Mapping[str, str]) -> None:
        self.number = number
        self._directory = directory
        self._properties = directory / "server.properties"
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._said: list[str] = []
        self._ready = threading.Event()  # or never will be
        directory.mkdir(parents=True)
        lines = (f"{name}={value}\n" for name, value in settings.items())
        self._properties.write_text("".join(lines), encoding="utf-8")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def format(self, *more: str) -> None:
        """Make the directory one of the cluster's."""
        tool = "kafka.tools.StorageTool"
        words = (tool, "format", "-t", CLUSTER_ID, "-c", self._properties, *more)
        subprocess.run(self._java(*words), capture_output=True, check=True)

    def spawn(self) -> None:
        """Begin a life without waiting for it."""
        assert self._process is None, "one life at a time"
        self._said, self._ready = [], threading.Event()
        self._process = subprocess.Popen(
            self._java("kafka.Kafka", self._properties),
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        arguments = (self._process.stdout, self._said, self._ready)
        self._reader = threading.Thread(target=_read, args=arguments, daemon=True)
        self._reader.start()

    def wait_ready(self) -> None:
        """Wait until it serves. Raises RuntimeError with what it said instead."""
        self._ready.wait(READY_TIMEOUT_S)
        if not any(READY.search(line) for line in self._said):
            self.kill()
            raise RuntimeError(f"Kafka node {self.number} does not serve:\n{''.join(self._said)}")

    def kill(self) -> None:
        """kill -9, at once."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM, and wait until it has gone."""
        self._end(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self) -> None:
        """Leave nothing running."""
        if self._process is not None:
            self.kill()

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert self._reader is not None
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join()

    def _java(self, *words: object) -> list[str]:
        return [*JAVA, "-cp", f"{JARS}/lib/*", *map(str, words)]


class KafkaCluster:
    """One node or several, as a context manager: nothing is left running.

    Args:
        directory: the nodes' directories are made in it.
        settings: of server.properties, instead of ours.
        host: the address where the nodes listen.
        security: what they ask of clients, and show; None: nothing, in clear text.
        listener: what `settings` call the listener of clients; "": by its protocol.
    Raises:
        UnavailableError: there is no Kafka to be had here.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        settings: Mapping[str, str] | None = None,
        host: str = HOST,
        security: Security | None = None,
        listener: str = "",
    ) -> None:
        fetch()
        self._security = security
        protocol = listener or ("PLAINTEXT" if security is None else "SASL_SSL")
        secure = {} if security is None else security.node_settings
        taken = free_ports(2 * count)
        ports = list(zip(taken[::2], taken[1::2], strict=True))
        voters = ",".join(f"{i}@{host}:{ports[i - 1][1]}" for i in range(1, count + 1))
        self.bootstrap = ",".join(f"{host}:{port}" for port, _ in ports)
        self.nodes: Sequence[KafkaNode] = [
            KafkaNode(
                directory / str(number),
                number,
                {
                    **SETTINGS,
                    "node.id": str(number),
                    "controller.quorum.voters": voters,
                    "listeners": f"{protocol}://{host}:{port},CONTROLLER://{host}:{control}",
                    "advertised.listeners": f"{protocol}://{host}:{port}",
                    "log.dirs": str(directory / str(number) / "data"),
                    "offsets.topic.replication.factor": str(min(count, 3)),
                    "transaction.state.log.replication.factor": str(min(count, 3)),
                    "transaction.state.log.min.isr": str(min(count, 2)),
                    **secure,
                    **(settings or {}),
                },
            )
            for number, (port, control) in enumerate(ports, 1)
        ]

    def start(self) -> Self:
        """Format the directories, and wait until every node serves."""
        users = () if self._security is None else ("--add-scram", self._security.scram)
        for node in self.nodes:
            node.format(*users)
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_ready()
        return self

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic on all nodes, and wait until it is there."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        replicas = min(len(self.nodes), 3)
        topic = NewTopic(name, partitions, replicas, config=dict(config or {}))
        admin.create_topics([topic])[name].result(READY_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.end()


def _read(stdout: IO[str], said: list[str], ready: threading.Event) -> None:
    with stdout, contextlib.ExitStack() as stack:
        stack.callback(ready.set)
        for line in stdout:
            said.append(line)
            if READY.search(line):
                ready.set()
