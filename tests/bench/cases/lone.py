"""The cost sheet of one lone message, and of 32 in a call: one call at a time, nothing beside it.

Instructions and allocations are counted by valgrind's callgrind, system calls by strace, each in a
broker of its own: neither depends on what else the machine does. Ids, keys, times and signatures
are new in each call, as official clients' are.
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench import callgrind
from bench.children import environment
from bench.measured import LOWER, Group, Result
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import topic_pb2
from support import wire_requests
from support.wire_client import WireClient, now_ms, require_ok

TOOLS: Final = ("valgrind", "callgrind_control", "strace")
VALGRIND: Final = (
    "valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=callgrind.out"
)  # fmt: skip
READY: Final = re.compile(r"latermq ready on \S+:(\d+)")
CONFIG: Final = "[server]\npolling_ms_min = 100\n"
PLAIN, FIFO, DELAYED, DUE, WAITING = "plain", "fifo", "delayed", "due", "waiting"
MANY: Final = "many"
TOPICS: Final = {
    PLAIN: topic_pb2.NORMAL, FIFO: topic_pb2.FIFO, DELAYED: topic_pb2.DELAY,
    DUE: topic_pb2.DELAY, WAITING: topic_pb2.NORMAL, MANY: topic_pb2.NORMAL,
}  # fmt: skip
GROUP: Final = "lone"
BODY: Final = bytes(1_024)
MESSAGE_GROUPS: Final = 50
BATCH: Final = 32
WARM_UP: Final = 40  # rounds of send, receive, acknowledge
FIRST_CALLS: Final = 20  # of each operation, which are not counted
# Until a receive that was sent waits in the broker, slow under valgrind. Not long: what the broker
# does 5 or 10 times a second would count to each message.
PARKED_S: Final = 0.03
SETTLED_S: Final = 0.5  # until what a call leaves to do later is done
IDLE_S: Final = 3.0
HOUR_MS: Final = 3_600_000
IDLE: Final = "one second without a call"
ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = {"broker/latermq_broker": "latermq_broker", "proto/latermq_h2": "latermq_h2"}


class Counts(NamedTuple):
    """What a broker did, for one call."""

    instructions: float = 0.0
    allocations: float = 0.0
    system_calls: float = 0.0
    rooms: dict[str, float] = {}  # noqa: RUF012  # instructions; never changed


class Meter(Protocol):
    """Counts what a process does between two moments."""

    def start(self) -> None: ...

    def stop(self) -> Counts: ...


class Callgrind:
    """Instructions and allocations of a process that runs under valgrind."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._pid = pid
        self._directory = directory
        self._modules = callgrind.rooms_of_modules(dict(compiled_modules()))
        self._control("--instr=on")

    def start(self) -> None:
        self._control("--zero")

    def stop(self) -> Counts:
        before = set(self._directory.iterdir())
        self._control("--dump=bench")
        (dump,) = set(self._directory.iterdir()) - before
        profile = callgrind.read(dump)
        rooms = callgrind.by_room(profile, self._modules)
        return Counts(profile.instructions, profile.allocations, 0, dict(rooms))

    def _control(self, word: str) -> None:
        command = ["callgrind_control", word, str(self._pid)]
        subprocess.run(command, check=True, capture_output=True, cwd=self._directory)


class Strace:
    """System calls of a process and its threads."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._command = ["strace", "-f", "-o", str(directory / "calls"), "-p", str(pid)]
        self._calls = directory / "calls"
        self._tracer: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._tracer = subprocess.Popen(self._command, stderr=subprocess.PIPE)
        assert self._tracer.stderr is not None
        self._tracer.stderr.readline()  # "attached"

    def stop(self) -> Counts:
        assert self._tracer is not None
        self._tracer.send_signal(signal.SIGINT)
        self._tracer.communicate()
        lines = self._calls.read_text(encoding="utf-8", errors="replace").splitlines()
        begun = [one for one in lines if "resumed>" not in one and "(" in one]
        return Counts(system_calls=len(begun))


class Client(WireClient):
    """One call at a time, each with headers of its own."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, "lone@1@0@bench")
        self._number = 0

    def send_one(
        self,
        topic: str,
        *,
        keyed: bool = False,
        due_ms: int = 0,
        message_group: str = "",
        dedup_id: str = "",
    ) -> None:
        number = self._number
        message = wire_requests.message(topic, BODY, tag="TagA", deliver_at_ms=due_ms)
        system = message.system_properties
        system.born_timestamp.CopyFrom(wire_requests.timestamp(1_795_000_000_000 + number * 17))
        if keyed:
            system.keys.append(f"order-{number * 7919}")
            message.user_properties["customer"] = f"c{number * 31}"
            message.user_properties["amount"] = f"{number}.00"
        if dedup_id:
            message.user_properties["LATERMQ_DEDUP_ID"] = dedup_id
        if message_group:
            system.message_type = definition_pb2.MessageType.FIFO
            system.message_group = message_group
        request = wire_requests.send([message])
        require_ok(self.call(self.messaging.SendMessage, request, *self._headers()))

    def receive_one(self, topic: str) -> str:
        """The handle of the next message; waits for it."""
        request = wire_requests.receive(topic, GROUP, count_max=1, wait_ms=20_000)
        stream = self.call(self.messaging.ReceiveMessage, request, *self._headers())
        (handle,) = [
            element.message.system_properties.receipt_handle
            for element in stream if element.HasField("message")
        ]  # fmt: skip
        return str(handle)

    def send_many(self) -> None:
        messages = [wire_requests.message(MANY, BODY, tag="TagA") for _ in range(BATCH)]
        request = wire_requests.send(messages)
        require_ok(self.call(self.messaging.SendMessage, request, *self._headers()))

    def receive_many(self) -> list[str]:
        """The handles of the next messages."""
        request = wire_requests.receive(MANY, GROUP, count_max=BATCH, wait_ms=20_000)
        stream = self.call(self.messaging.ReceiveMessage, request, *self._headers())
        return [
            element.message.system_properties.receipt_handle
            for element in stream if element.HasField("message")
        ]  # fmt: skip

    def ack_all(self, topic: str, handles: Sequence[str]) -> None:
        request = wire_requests.ack(topic, GROUP, handles)
        for entry in request.entries:
            entry.message_id = wire_requests.new_message_id()
        require_ok(self.call(self.messaging.AckMessage, request, *self._headers()))

    def _headers(self) -> tuple[tuple[str, str | bytes], ...]:
        self._number += 1
        number = self._number
        signature = f"MQv2-HMAC-SHA1 Credential=key/RocketMQ, Signature={number * 104729:040X}"
        return (
            ("x-mq-date-time", f"20261121T{number % 24:02}1700Z"),
            ("x-mq-request-id", f"{number * 7919:036}"),
            ("authorization", signature),
        )


class Sheet:
    """Each operation `count` times, between a meter's start and stop."""

    def __init__(self, client: Client, meter: Meter, count: int) -> None:
        self._client = client
        self._meter = meter
        self._count = count
        self._idle = Counts()  # in a second

    def all(self) -> Iterator[tuple[str, Counts]]:
        """Names of operations, and what one costs; what passes by itself in that time left out."""
        client = self._client
        self.make_topics(*TOPICS)
        groups = (f"customer-{number % MESSAGE_GROUPS}" for number in range(1 << 30))
        dedup_ids = (f"order-{number * 7919:020}" for number in range(1 << 30))
        handles: list[str] = []

        def send_fifo() -> None:
            client.send_one(FIFO, keyed=True, message_group=next(groups))

        def send_once() -> None:
            client.send_one(PLAIN, keyed=True, dedup_id=next(dedup_ids))

        def send_delayed() -> None:
            client.send_one(DELAYED, keyed=True, due_ms=now_ms() + HOUR_MS)

        def receive(topic: str) -> None:
            handles.append(client.receive_one(topic))

        def ack(topic: str) -> None:
            client.ack_all(topic, [handles.pop()])

        for topic, send in ((PLAIN, partial(client.send_one, PLAIN)), (FIFO, send_fifo)):
            for _ in range(WARM_UP):  # every path once: caches, templates, tables
                send()
                receive(topic)
                ack(topic)
        yield IDLE, self.idle()
        yield "send", self.send()
        yield "receive", self._measure(partial(receive, PLAIN))
        yield "acknowledge", self._measure(partial(ack, PLAIN))
        yield (
            "send, with a key and properties",
            self._measure(partial(client.send_one, PLAIN, keyed=True)),
        )
        yield "send, with a dedup id too", self._measure(send_once)
        yield (
            "send, of a dedup id that is known",
            self._measure(partial(client.send_one, PLAIN, keyed=True, dedup_id=next(dedup_ids))),
        )
        yield "FIFO send", self._measure(send_fifo)
        yield "FIFO receive", self._measure(partial(receive, FIFO))
        yield "FIFO acknowledge", self._measure(partial(ack, FIFO))
        yield "delayed send", self._measure(send_delayed)
        yield "coming due", self._coming_due()
        batches: list[list[str]] = []
        for _ in range(FIRST_CALLS + self._count):
            client.send_many()
        yield (
            "32 received, a message",
            self._measure(lambda: batches.append(client.receive_many()), BATCH),
        )
        yield (
            "32 acknowledged, a message",
            self._measure(lambda: client.ack_all(MANY, batches.pop(0)), BATCH),
        )
        with ThreadPoolExecutor(1) as other:
            yield (
                "send, and the receive that waits for it",
                self._measure(partial(self._to_waiting, other)),
            )

    def make_topics(self, *topics: str) -> None:
        """Make some of TOPICS."""
        for topic in topics:
            self._client.create_topic(topic, type=TOPICS[topic])

    def idle(self) -> Counts:
        """Count what a second without a call costs; it is taken from what follows."""
        with self._metered(1) as result:
            time.sleep(IDLE_S)
        self._idle = scaled(result[0], 1 / IDLE_S)
        return self._idle

    def send(self) -> Counts:
        """Count plain sends."""
        return self._measure(partial(self._client.send_one, PLAIN))

    def _to_waiting(self, other: ThreadPoolExecutor) -> None:
        waiting = other.submit(self._client.receive_one, WAITING)
        time.sleep(PARKED_S)
        self._client.send_one(WAITING, keyed=True)
        waiting.result()

    def _coming_due(self) -> Counts:
        due_ms = now_ms() + 8_000
        for _ in range(self._count):
            self._client.send_one(DUE, keyed=True, due_ms=due_ms)
        if now_ms() > due_ms - 500:
            raise RuntimeError("sending took too long to count what coming due costs")
        with self._metered(self._count) as result:
            time.sleep((due_ms - now_ms()) / 1_000 + SETTLED_S)
        return result[0]

    def _measure(self, operation: Callable[[], None], messages: int = 1) -> Counts:
        for _ in range(FIRST_CALLS):
            operation()
        with self._metered(self._count * messages) as result:
            for _ in range(self._count):
                operation()
        return result[0]

    @contextmanager
    def _metered(self, count: int) -> Iterator[list[Counts]]:
        """What one of `count` costs is in the list afterwards."""
        result: list[Counts] = []
        time.sleep(SETTLED_S)
        self._meter.start()
        begun = time.monotonic()
        yield result
        time.sleep(SETTLED_S)
        took = time.monotonic() - begun
        whole = self._meter.stop()
        result.append(scaled(less(whole, scaled(self._idle, took)), 1 / count))


def scaled(counts: Counts, factor: float) -> Counts:
    return Counts(
        counts.instructions * factor,
        counts.allocations * factor,
        counts.system_calls * factor,
        {room: value * factor for room, value in counts.rooms.items()},
    )


def less(counts: Counts, other: Counts) -> Counts:
    return Counts(
        counts.instructions - other.instructions,
        counts.allocations - other.allocations,
        max(0.0, counts.system_calls - other.system_calls),
        {room: value - other.rooms.get(room, 0) for room, value in counts.rooms.items()},
    )


def compiled_modules() -> Iterator[tuple[str, str]]:
    """Dotted names of the sources, and the room of each: its folder."""
    for folder, package in PACKAGES.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            room = "/".join(parts[:-1]) if package == "latermq_broker" else package
            yield ".".join((package, *parts)), room or "top"


@contextmanager
def broker(*tool: str, shards: Sequence[str] = ()) -> Iterator[tuple[str, int, Path]]:
    """A broker started by `tool`: where it listens, its process, an empty directory.

    Args:
        shards: addresses of a cluster of which it is the first; the others need not be there.
    """
    with tempfile.TemporaryDirectory(prefix="latermq-lone-") as name:
        directory = Path(name)
        (directory / "latermq.toml").write_text(CONFIG, encoding="utf-8")
        (directory / "counts").mkdir()
        command = [
            *tool, sys.executable, "-m", "latermq_broker", "serve",
            "--listen", shards[0] if shards else "127.0.0.1:0",
            "--data-dir", str(directory / "data"), "--config", str(directory / "latermq.toml"),
        ]  # fmt: skip
        of_cluster = {"LATERMQ_CLUSTER_SHARDS": ",".join(shards), "LATERMQ_CLUSTER_SHARD": "0"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment() | (of_cluster if shards else {}), cwd=directory / "counts",
        )  # fmt: skip
        try:
            assert process.stdout is not None
            ready = READY.search(process.stdout.readline())
            assert ready is not None, "the broker did not start"
            yield f"127.0.0.1:{ready[1]}", process.pid, directory / "counts"
        finally:
            process.kill()
            process.wait()


def sheet(count: int) -> Iterator[Result]:
    """The sheet as one case per operation, and the rooms as a table of their own."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"no cost sheet: {', '.join(missing)} missing (apt: valgrind, strace)",
              file=sys.stderr)  # fmt: skip
        return
    with broker(*VALGRIND) as (endpoint, pid, directory), Client(endpoint) as client:
        counted = dict(Sheet(client, Callgrind(pid, directory), count).all())
    with broker() as (endpoint, pid, directory), Client(endpoint) as client:
        called = dict(Sheet(client, Strace(pid, directory), count).all())
    last = list(counted)[-1]
    for name, counts in counted.items():
        yield Result(
            case=f"lone: {name}", what=f"lone message: {name}", unit="thousand instructions",
            better=LOWER, runs=(counts.instructions / 1e3,),
            details={"allocations": counts.allocations,
                     "system calls": round(called[name].system_calls, 1)},
            text=rooms_table(counted) if name == last else "",
        )  # fmt: skip


def rooms_table(counted: dict[str, Counts]) -> str:
    """Thousand instructions, rooms as rows, those first that take most."""
    names = [name for name in counted if name != IDLE]
    total: dict[str, float] = {}
    for name in names:
        for room, value in counted[name].rooms.items():
            total[room] = total.get(room, 0) + value
    lines = [
        "## One lone message, by room\n",
        "Thousand instructions of the broker a call; C code that serves everybody (Python's",
        "objects, libc) counts where it is called from. *interpreted Python*: not compiled.\n",
        f"| room | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for room in sorted(total, key=lambda room: -total[room]):
        cells = [f"{counted[name].rooms.get(room, 0) / 1e3:.1f}" for name in names]
        lines.append(f"| {room} | {' | '.join(cells)} |")
    return "\n".join(lines)


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    yield ("lone",), partial(sheet, 400 if full else 100)
