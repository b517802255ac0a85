"""A broker that owns a replicated log, and loses it or is told to end before it serves anybody."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from latermq_broker import runtime
from latermq_broker.clock import monotonic_ms
from latermq_broker.config.config import Config, LogConfig, ServerConfig, StoreConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.engine import Engine
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.replication import replica as replica_module
from latermq_broker.replication.batch import (
    NOBODY,
    cluster_hash,
    decode_batch,
    encode_batch,
    fence_of,
)
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.replication.standby import Standby
from latermq_broker.replication.tenure import PAUSE_MS
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from latermq_cli.root import latermq
from support.log_in_memory import LogInMemory

# A broker's loop passes no exception of a signal on: a test that stands still ends its process.
pytestmark = pytest.mark.timeout(120, method="thread")

SEGMENT_BYTES = 17 << 20
PATIENCE_MS = 60_000  # of who hands over, on whatever machine


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """A broker is a process of its own elsewhere."""
    interval_s = sys.getswitchinterval()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
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
    said: list[str] = []
    log = AwkwardLog(meanwhile)
    return run(tmp_path, log, lambda: log.now_ms, said.append), said


def run(
    tmp_path: Path,
    log: LogInMemory,
    now_ms: Callable[[], int],
    announce: Callable[[str], None],
    lives: list[bool] | None = None,
) -> int:
    """Return the exit code; `lives` is told of each whether it is one again."""
    config = Config(
        server=ServerConfig(
            listen="127.0.0.1:0",
            data_dir=str(tmp_path / "data"),
            replace_drain_ms_max=PATIENCE_MS,
        ),
        store=StoreConfig(segment_bytes=SEGMENT_BYTES),
        log=LogConfig(level="error"),
    )
    place = ReplicaPlace(cluster="shop", shard=0, directory=tmp_path / "data")

    def replica_of(config: Any, again: bool) -> Replica:
        if lives is not None:
            lives.append(again)
        return Replica(place, log, config, RealFiles(), now_ms)

    return runtime.run_replica(config, announce, replica_of)


def test_who_loses_the_log_before_it_serves_opens_no_port(tmp_path: Path) -> None:
    def somebody_else(log: AwkwardLog) -> None:
        log.entries.append(encode_batch(fence_of(cluster_hash("shop"), 0, 9, 9)))

    code, said = served(tmp_path, somebody_else)
    assert code == runtime.TRY_AGAIN
    assert said == ["latermq standing by"]


def test_who_is_told_to_end_before_it_serves_opens_no_port(tmp_path: Path) -> None:
    code, said = served(tmp_path, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert code == runtime.CLEAN
    assert said == ["latermq standing by"]


class Operator:
    """Has the broker hand over when it is ready, and end when it is ready again.

    Args:
        stall_s: for which the loop stands still before that end.
    """

    def __init__(self, stall_s: float = 0.0) -> None:
        self._stall_s = stall_s
        self.said: list[str] = []
        self.answers: list[Result] = []
        self._asking: threading.Thread | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._asking is not None:
            self._asking.join()

    def hear(self, line: str) -> None:
        """Take what the broker announces."""
        self.said.append(line)
        if len(self.said) == 2:
            self._asking = threading.Thread(target=self._ask, args=(line.split()[-1],))
            self._asking.start()
        elif len(self.said) == 4:
            threading.Event().wait(self._stall_s)
            os.kill(os.getpid(), signal.SIGTERM)

    def _ask(self, endpoint: str) -> None:
        """Ask until it is done: on a slow machine a broker is not reached in time."""
        words = ("cluster", "hand-over", "--endpoint", endpoint)
        while not (self._is_over or (self.answers and self.answers[-1].exit_code == 0)):
            self.answers.append(CliRunner().invoke(latermq, words))


class Restless(LogInMemory):
    """Has a signal come, and be heard of, while the first life that had it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    async def close(self) -> None:
        if not self._told:
            self._told = True
            await told_to_end()


async def told_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    while signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        await asyncio.sleep(0)


def token_of_last(log: LogInMemory) -> int:
    return decode_batch(log.entries[-1], 0).token


def test_who_is_told_to_end_while_it_becomes_the_owner_opens_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When nobody looks any more whether a standby is to end, and no owner does yet."""
    begin_life = Standby.begin_life

    async def told_first(standby: Standby) -> tuple[Engine, DiskWork]:
        await told_to_end()
        return await begin_life(standby)

    monkeypatch.setattr(Standby, "begin_life", told_first)
    monkeypatch.setattr(runtime, "LAST_WORDS_MS", PATIENCE_MS)
    log, said = LogInMemory(), list[str]()

    def announce(line: str) -> None:
        said.append(line)
        if "ready" in line:  # which must not be; it would not end
            os.kill(os.getpid(), signal.SIGTERM)

    assert run(tmp_path, log, monotonic_ms, announce) == runtime.CLEAN
    assert said == ["latermq standing by"]
    assert token_of_last(log) == NOBODY


def test_who_is_told_to_end_when_it_has_handed_over_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "TAKE_OVER_MS", 100)
    monkeypatch.setattr(runtime, "LAST_WORDS_MS", PATIENCE_MS)
    log = Restless()
    with Operator() as operator:
        assert run(tmp_path, log, monotonic_ms, operator.hear) == runtime.CLEAN
    assert [line.split()[1] for line in operator.said] == ["standing", "ready"]
    assert token_of_last(log) == NOBODY


@pytest.mark.parametrize("stall_s", [0.0, 1.2 * PAUSE_MS / 1_000], ids=["at once", "after a stall"])
def test_a_log_that_was_handed_over_to_nobody_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stall_s: float
) -> None:
    """By the same process, which stands by then; one that is told to end hands over, too.

    An owner that stood still drops its connections: without any, no answer is in doubt.
    """
    monkeypatch.setattr(replica_module, "TAKE_OVER_MS", 100)
    monkeypatch.setattr(replica_module, "RANK_MS", 1)
    monkeypatch.setattr(runtime, "LAST_WORDS_MS", PATIENCE_MS)
    log, lives = LogInMemory(), list[bool]()
    with Operator(stall_s) as operator:
        code = run(tmp_path, log, monotonic_ms, operator.hear, lives)
    assert code == runtime.CLEAN
    assert lives == [False, True]
    assert [line.split()[1] for line in operator.said] == ["standing", "ready"] * 2
    assert "hands over the log of shop, epoch 1" in operator.answers[-1].output
    fences = [batch for batch in map(decode_batch, log.entries, count()) if batch.fence]
    assert [(batch.epoch, batch.token == NOBODY) for batch in fences] == [
        (1, False), (2, True), (3, False), (4, True),
    ]  # fmt: skip
    config = StoreConfig(segment_bytes=SEGMENT_BYTES)
    store = Store.open(tmp_path / "data", config, RealFiles(), 0)
    engine = Engine.open(store, Config(store=config), 0)
    assert engine.recovery is not None
    assert engine.recovery.clean  # so the leases of push consumers go on
    engine.abandon()
