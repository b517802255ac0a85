"""Golden data directories: made once by the version that wrote them, opened by every later one.

    PYTHONPATH=tests python -m golden.make        makes those that are missing; never one anew

To add one, write a scenario below and run that. Each is a `.tar.xz` of the directory, with what
must be found in it as `expected.json`, in the words of the broker's own views.
"""

import io
import json
import sys
import tarfile
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any, Final

from latermq_broker.delivery.halves import HalfEvent
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    DeadFilter,
    Failure,
    Outgoing,
    PendingFilter,
    TopicType,
)
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryFiles

HERE: Final = Path(__file__).parent
EXPECTED: Final = "expected.json"
HOUR_MS: Final = 3_600_000
FAILURE: Final = Failure("ValueError", "bad total", "hash", "Traceback: bad total")

View = dict[str, Any]


def view(engine: Engine, now_ms: int) -> View:
    """What users can see of it, as JSON has it."""
    found: View = {"now_ms": now_ms, "topics": {}, "dead": {}}
    for topic in engine.catalog.topics():
        queues = found["topics"][topic.name] = {}
        for ends in engine.topics.ends(topic):
            rows = engine.queues.read(
                topic.name, "", ends.queue_id, ends.earliest_offset, ends.next_offset,
                rows_max=10_000, bytes_max=1 << 40,
            )  # fmt: skip
            queues[str(ends.queue_id)] = [
                [row.queue_offset, row.sys.decode(), md5(row.rest).hexdigest()] for row in rows
            ]
    items, _ = engine.pending.page(PendingFilter(), 10_000, scan_max=10_000)
    found["pending"] = sorted(
        [item.kind.name, item.topic, item.group, item.sys.decode(), item.due_ms, item.attempt]
        for item in items
    )
    for group in engine.catalog.groups():
        letters = engine.dead.scan(group.name, DeadFilter(), count_max=10_000).letters
        found["dead"][group.name] = [
            [letter.sys.decode(), letter.reason, letter.attempt_count, len(letter.attempts)]
            for letter in letters
        ]
    return found


def some(rig: EngineRig) -> None:
    """Messages in every state that a group knows."""
    rig.engine.topics.create("orders", TopicType.NORMAL, 2, rig.now_ms)
    rig.engine.groups.create("billing", fifo=False, max_attempts=3, backoff=None, now_ms=rig.now_ms)
    for number in range(12):
        rig.send(f"m{number}", tag="even" if number % 2 == 0 else "odd", body=b"body %d" % number)
    first, second, third, *rest = rig.receive(count=8, lease_ms=HOUR_MS)
    rig.ack(first, second)
    rig.engine.change_invisible("billing", third.handle, 60_000, rig.now_ms, failure=FAILURE)
    rig.ack(*rest[:2])
    rig.engine.write()
    rig.advance(10)


def clean_stop(rig: EngineRig) -> None:
    some(rig)
    rig.engine.close(rig.now_ms)


def after_kill(rig: EngineRig) -> None:
    some(rig)


def checkpoint_then_kill(rig: EngineRig) -> None:
    some(rig)
    rig.checkpoint()
    rig.send("later", body=b"after the checkpoint")
    rig.ack(*rig.receive(count=1))


def dead_letters(rig: EngineRig) -> None:
    some(rig)
    for _ in range(3):
        [held] = rig.receive(count=1)
        rig.engine.forward("billing", held.handle, rig.now_ms, FAILURE)
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.engine.dead.drop("billing", [1], rig.now_ms)
    rig.engine.write()


def letters(rig: EngineRig) -> None:
    """What became of letters, in a checkpoint."""
    dead_letters(rig)
    rig.checkpoint()


def delayed(rig: EngineRig) -> None:
    some(rig)
    for number, wait_ms in enumerate((1_000, 5 * 60_000, 24 * HOUR_MS, 400 * 24 * HOUR_MS)):
        rig.send(f"d{number}", wait_ms=wait_ms)
    rig.send("level", level=3)
    rig.checkpoint()
    items, _ = rig.engine.pending.page(PendingFilter(topic="orders"), 100)
    ids = {item.sys.decode(): item.pending_id for item in items}
    rig.engine.pending.cancel(ids["d1"], rig.now_ms)
    rig.engine.pending.postpone(ids["d2"], rig.now_ms + 48 * HOUR_MS, rig.now_ms)
    rig.advance(2_000)


def retention(rig: EngineRig) -> None:
    some(rig)
    rig.send("waits", wait_ms=24 * HOUR_MS)
    while len(rig.engine.store.log.segments) < 4:
        rig.send("f", topic="filler", body=bytes(6_000))
    rig.checkpoint()
    rig.advance(61_000)
    rig.retain()
    assert rig.segments()[0] > 0


def transactions(rig: EngineRig) -> None:
    some(rig)
    rig.engine.topics.create("money", TopicType.TRANSACTION, 1, rig.now_ms)
    ends = {"open": None, "committed": HalfEvent.COMMIT, "rolled-back": HalfEvent.ROLLBACK}
    for name, event in ends.items():
        half = Outgoing(topic="money", rest=b"half", sys=name.encode(), message_id=name)
        [sent] = rig.engine.transactions.send([half], rig.now_ms)
        if event is not None:
            rig.engine.transactions.end("money", sent.transaction_id, name, event, rig.now_ms)
    rig.engine.write()


def message_groups(rig: EngineRig) -> None:
    some(rig)
    rig.engine.topics.create("steps", TopicType.FIFO, 1, rig.now_ms)
    rig.engine.groups.create("ordered", fifo=True, max_attempts=3, backoff=None, now_ms=rig.now_ms)
    for number in range(6):
        key = "a" if number % 2 else "b"
        message = Outgoing(
            topic="steps", rest=b"step", sys=b"s%d" % number, message_id=f"s{number}",
            message_group=key,
        )  # fmt: skip
        rig.engine.send([message], rig.now_ms)
    rig.engine.write()
    held = rig.receive("ordered", topic="steps", count=2, lease_ms=HOUR_MS)
    rig.ack(held[0], group="ordered")


SCENARIOS: Final[dict[str, Callable[[EngineRig], None]]] = {
    "clean-stop": clean_stop,
    "after-kill": after_kill,
    "checkpoint": checkpoint_then_kill,
    "dead-letters": dead_letters,
    "delayed": delayed,
    "letters": letters,
    "retention": retention,
    "transactions": transactions,
    "message-groups": message_groups,
}


def make(name: str, archive_path: Path) -> None:
    """Run the scenario and pack what it leaves, with what the same version finds in it."""
    files = MemoryFiles()
    rig = EngineRig(files=files, store=short_store(64 << 10))
    SCENARIOS[name](rig)
    rig.engine.abandon()
    files.disk.kill()
    opened = EngineRig(
        files=MemoryFiles(files.disk.clone()), store=rig.config.store, now_ms=rig.now_ms
    )
    expected = json.dumps(view(opened.engine, rig.now_ms), indent=1, sort_keys=True)
    contents = {
        str(path.relative_to(rig.DIRECTORY)): data for path, data in files.disk.snapshot().items()
    }
    with tarfile.open(archive_path, "w:xz") as archive:
        for member, data in sorted({**contents, EXPECTED: expected.encode()}.items()):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def main() -> int:
    for name in SCENARIOS:
        path = HERE / f"{name}.tar.xz"
        if not path.exists():
            make(name, path)
            print(f"made {path.name}, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
