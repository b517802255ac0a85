"""The core alone, in this process: what a message costs before gRPC has a part in it."""

import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.measured import HIGHER, LOWER, Group, Result, medians, repeated
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Outgoing, ReceiveRequest
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from support import wire_requests

TOPIC: Final = "bench"
GROUP: Final = "bench"
NOW_MS: Final = 1_800_000_000_000
KIB: Final = 1 << 10
MIB: Final = 1 << 20

# Case → what the prototype of the design took, and why the whole takes longer.
PROTOTYPE: Final = {
    "engine_receive_ack": (
        "660,000 … 1,100,000",
        "the prototype leased and acknowledged numbers in an array; here the message is read, "
        "verified and built, a handle made and checked, and two records written",
    ),
    "engine_fire": (
        "300,000 … 900,000",
        "the prototype wrote references for numbers; here the message is read and verified first, "
        "and counted for retention",
    ),
    "engine_replay": (
        "740,000",
        "the prototype rebuilt queue entries only; here topics, counters per segment, the index of "
        "ids and what waits are built too, by the functions that serve live",
    ),
}


def outgoing(body_bytes: int, deliver_at_ms: int = 0) -> Outgoing:
    """A message as the send service hands it over."""
    message = wire_requests.message(TOPIC, bytes(body_bytes), tag="t")
    message.system_properties.body_digest.checksum = "0" * 32
    message.system_properties.store_timestamp.CopyFrom(wire_requests.timestamp(NOW_MS))
    sys = message.system_properties.SerializeToString()
    message_id = message.system_properties.message_id
    message.ClearField("system_properties")
    message.ClearField("topic")
    return Outgoing(
        topic=TOPIC,
        rest=message.SerializeToString(),
        sys=sys,
        message_id=message_id,
        tag="t",
        deliver_at_ms=deliver_at_ms,
    )


def open_engine(data_dir: Path, config: Config) -> Engine:
    return Engine.open(Store.open(data_dir, config.store, RealFiles(), NOW_MS), config, NOW_MS)


@contextmanager
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="latermq-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def engine(config: Config | None = None) -> Iterator[Engine]:
    """A new one, gone afterwards."""
    with scratch() as path:
        made = open_engine(path / "data", config or Config())
        try:
            yield made
        finally:
            made.store.abandon()


def timed(count: int, work: Callable[[], None]) -> dict[str, float]:
    """`work` handles `count` messages: per second, and microseconds of CPU for each."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"per_second": count / wall, "CPU us": cpu / count * 1e6}


def send(count: int, per_write: int) -> dict[str, float]:
    messages = [outgoing(KIB) for _ in range(per_write)]
    with engine() as core:

        def work() -> None:
            for _ in range(count // per_write):
                for message in messages:
                    core.send([message], NOW_MS)
                core.write()

        return timed(count, work)


def receive_ack(count: int) -> dict[str, float]:
    """32 at a time, a write after the receive and one after the acknowledgement."""
    request = ReceiveRequest(
        group=GROUP, topic=TOPIC, client_id="bench", count_max=32, invisible_ms=60_000
    )
    with engine() as core:
        for _ in range(count // 100):
            core.send([outgoing(KIB)] * 100, NOW_MS)
        core.write()
        done = 0

        def work() -> None:
            nonlocal done
            while got := core.receive(request, NOW_MS):
                core.write()
                core.ack(GROUP, [one.handle for one in got], NOW_MS)
                core.write()
                done += len(got)

        figures = timed(count // 100 * 100, work)
        assert done == count // 100 * 100
        return figures


def fire(count: int) -> dict[str, float]:
    """Delayed messages that are all due: into their queue, as fast as the ticks go."""
    with engine() as core:
        for _ in range(count // 100):
            core.send([outgoing(100, NOW_MS + 1_000)] * 100, NOW_MS)
        core.write()

        def work() -> None:
            while (due_ms := core.tick(NOW_MS + 1_000)) is not None and due_ms <= NOW_MS + 1_000:
                core.write()

        return timed(count, work)


def replay(count: int) -> dict[str, float]:
    """Opening a log of messages after a crash, with no checkpoint to begin from."""
    with scratch() as path:
        fill(path / "data", count, KIB, clean=False)

        def work() -> None:
            open_engine(path / "data", Config()).store.abandon()

        return timed(count, work)


def fill(data_dir: Path, count: int, body_bytes: int, *, clean: bool) -> None:
    """A directory with `count` messages, as a broker leaves it that stopped or died."""
    core = open_engine(data_dir, Config())
    messages = [outgoing(body_bytes) for _ in range(100)]
    for index in range(count // 100):
        core.send(messages, NOW_MS + index)
        core.write()
    if clean:
        core.close(NOW_MS + count)
    else:
        core.store.abandon()


def retry_bytes(auto_renew: bool) -> dict[str, float]:
    """The log's growth from one delivery to the next, 1 MiB body, attempts 2 to 5: the most."""
    request = ReceiveRequest(
        group=GROUP,
        topic=TOPIC,
        client_id="bench",
        count_max=1,
        invisible_ms=1_000,
        auto_renew=auto_renew,
    )
    now_ms = NOW_MS
    grown = []
    with engine() as core:
        core.send([outgoing(MIB)], now_ms)
        [got] = core.receive(request, now_ms)
        for _ in range(4):
            end = core.store.log.end
            if auto_renew:
                core.change_invisible(GROUP, got.handle, 1_000, now_ms)
            now_ms += 1_000
            core.tick(now_ms)
            [got] = core.receive(request, now_ms)
            grown.append(core.store.log.end - end)
            core.write()
    return {"bytes": max(grown)}


def rate(case: str, what: str, runs: int, measure: Callable[[], Mapping[str, float]]) -> Result:
    values = repeated(runs, measure)
    per_second = values.pop("per_second")
    prototype, why = PROTOTYPE.get(case, ("", ""))
    return Result(
        case=case, what=what, unit="messages/s", better=HIGHER, runs=per_second,
        details=medians(values), prototype=prototype, why=why,
    )  # fmt: skip


def grown(case: str, what: str, *, auto_renew: bool) -> Result:
    runs = repeated(1, lambda: retry_bytes(auto_renew))["bytes"]
    return Result(
        case=case, what=what, unit="bytes", better=LOWER, runs=runs,
        bound="≤ 192", holds=max(runs) <= 192,
    )  # fmt: skip


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    count, runs = (100_000, 5) if full else (20_000, 3)
    rates: list[tuple[str, str, Callable[[], Mapping[str, float]]]] = [
        ("engine_send_1", "send, 1 KiB, a write for each", lambda: send(count, 1)),
        ("engine_send_100", "send, 1 KiB, a write for each 100", lambda: send(count, 100)),
        ("engine_receive_ack", "receive and acknowledge, 32 at a time", lambda: receive_ack(count)),
        ("engine_fire", "delayed messages that become due", lambda: fire(count)),
        ("engine_replay", "replay after a crash, 1 KiB messages", lambda: replay(count)),
    ]
    for case, what, measure in rates:
        yield (case,), partial(_one, partial(rate, case, f"core: {what}", runs, measure))
    after = "log for one more attempt, 1 MiB body, after"
    for case, what, auto_renew in (
        ("log_per_nack", f"{after} a nack", True),
        ("log_per_expiry", f"{after} an expired lease", False),
    ):
        yield (case,), partial(_one, partial(grown, case, what, auto_renew=auto_renew))


def _one(make: Callable[[], Result]) -> Iterator[Result]:
    yield make()
