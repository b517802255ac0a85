"""A broker whose log a Kafka keeps, and how far it is."""

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.cases.broker import SHORT_POLLS
from bench.cluster.meters import LOOK_S, wait
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports
from support.kafka.cluster import KafkaCluster
from support.machine import patient

POSITION: Final = re.compile(r"^latermq_replication_position(?:\{.*\})? (\S+)$", re.MULTILINE)
FOLLOWING: Final = "following the replicated log"
WARM: Final = "follows with an engine"
SOON_S: Final = patient(60)
ASK_S: Final = 0.1  # between two looks at its metrics, which it has to write
SAID_CHARACTERS_MAX: Final = 3_000
CONFIG: Final = """
[replication]
kafka = "{kafka}"
cluster = "{cluster}"
replicas = {replicas}
replicas_min = {replicas_min}
[metrics]
listen = "{metrics}"
"""


class BrokerOnKafka(BrokerProcess):
    """An owner, if it is the first of its cluster, or a standby.

    Args:
        cluster: the name of the log that it is to have.
        words: more of its command.
    """

    def __init__(self, data_dir: Path, kafka: KafkaCluster, cluster: str, *words: str) -> None:
        self._metrics = f"127.0.0.1:{free_ports(1)[0]}"
        replicas = min(len(kafka.nodes), 3)
        text = CONFIG.format(
            kafka=kafka.bootstrap, cluster=cluster, metrics=self._metrics,
            replicas=replicas, replicas_min=min(replicas, 2),
        )  # fmt: skip
        super().__init__(data_dir, *words, config=SHORT_POLLS + text)

    @property
    def position(self) -> int:
        """Up to where a quorum has the log, as far as this broker has read it."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=SOON_S) as answer:
            page = answer.read().decode()
        match = POSITION.search(page)
        assert match is not None, page
        return int(float(match[1]))

    def wait_following(self) -> None:
        """Wait until it begins to read."""
        self._wait(lambda: self.logged(FOLLOWING) > 0, "a standby to begin")

    def wait_warm(self, timeout_s: float = SOON_S) -> None:
        """Wait until it could take over: it applies what it reads."""
        self._wait(lambda: self.logged(WARM) > 0, "a standby to follow", timeout_s)

    def wait_position(self, position: int, timeout_s: float = SOON_S) -> None:
        """Wait until it has read so far."""
        self._wait(lambda: self.position >= position, "a standby to catch up", timeout_s, ASK_S)

    def _wait(
        self,
        holds: Callable[[], bool],
        what: str,
        timeout_s: float = SOON_S,
        look_s: float = LOOK_S,
    ) -> None:
        """Wait until it holds. Raises RuntimeError with what the broker said."""
        try:
            wait(holds, what, timeout_s, look_s)
        except (RuntimeError, OSError) as error:
            said = self.log_path.read_text(encoding="utf-8")[-SAID_CHARACTERS_MAX:]
            raise RuntimeError(f"{error}\n{said}") from error
