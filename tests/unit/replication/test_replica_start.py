"""A broker that owns a replicated log, and loses it or is told to end before it serves anybody."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from latermq_broker import runtime
from latermq_broker.config.config import Config, LogConfig, ServerConfig, StoreConfig
from latermq_broker.deferred import Later
from latermq_broker.replication.batch import cluster_hash, encode_batch, fence_of
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.files import RealFiles
from support.log_in_memory import LogInMemory
from support.log_set_up import log_as_it_was

SEGMENT_BYTES = 17 << 20


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """A broker is a process of its own elsewhere."""
    interval_s = sys.getswitchinterval()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with log_as_it_was():
        yield
    sys.setswitchinterval(interval_s)
    for number, handler in handlers.items():
        signal.signal(number, handler)


class AwkwardLog(LogInMemory):
    """Has `meanwhile` happen at the owner's first append. Its clock stands, too early to serve."""

    def __init__(self, meanwhile: Callable[["AwkwardLog"], None]) -> None:
        super().__init__()
        self._meanwhile: Callable[[AwkwardLog], None] | None = meanwhile

    def append(self, batch: bytes) -> Later[int]:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile(self)
        return super().append(batch)


def served(tmp_path: Path, meanwhile: Callable[[AwkwardLog], None]) -> tuple[int, list[str]]:
    config = Config(
        server=ServerConfig(listen="127.0.0.1:0", data_dir=str(tmp_path / "data")),
        store=StoreConfig(segment_bytes=SEGMENT_BYTES),
        log=LogConfig(level="error"),
    )
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")
    said: list[str] = []

    def replica_of(config: Any) -> Replica:
        log = AwkwardLog(meanwhile)
        return Replica(place, log, config, RealFiles(), lambda: log.now_ms)

    return runtime.run_replica(config, said.append, replica_of), said


def test_who_loses_the_log_before_it_serves_opens_no_port(tmp_path: Path) -> None:
    def somebody_else(log: AwkwardLog) -> None:
        log.entries.append(encode_batch(fence_of(cluster_hash("shop"), 0, 9, 9)))

    code, said = served(tmp_path, somebody_else)
    assert code == runtime.STORE_FAILED
    assert said == ["latermq standing by"]


def test_who_is_told_to_end_before_it_serves_opens_no_port(tmp_path: Path) -> None:
    code, said = served(tmp_path, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert code == runtime.CLEAN
    assert said == ["latermq standing by"]
