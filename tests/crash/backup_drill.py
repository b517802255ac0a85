"""Backups of a broker under load, while it or who makes them is killed; each restored and compared.

    make backup-drill BACKUPS=100 SEED=1

Every command is a process of its own. Some are let be; some get kill -9, or find that nothing
larger may be written to the target, or lose the broker in the middle. Of every backup that the
place has afterwards a data directory is made, a broker started on it, and what that has held
against the ledger as it was when the command began: nothing acknowledged before is missing, nothing
that was settled comes back.
"""

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from crash.load import AUDIT, TOPIC, WORKERS, Load
from crash.read_back import ALWAYS, drain, left_in, old_enough, still_delayed
from crash.test_kill import CONFIG, FLUSHES, RETENTION_MS, Crashes, End
from latermq_broker.offline.backup_commands import examined, restored
from latermq_cli.backup.manifest import Manifest
from latermq_cli.backup.repository import PART, Repository
from latermq_cli.backup.shelf import DirectoryShelf
from support.broker_nursery import Nursery
from support.broker_process import BrokerProcess
from support.ledger import Ledger
from support.ledger_sends import Outcome
from support.machine import patient
from support.wire_client import WireClient, require_ok

ROUNDS_MAX: Final = 12  # for each backup that is wanted
FILE_BLOCKS_MAX: Final = 400  # of 512 bytes: less than a whole segment of the drill
BACKUPS_OF_ONE: Final = 5  # broker: the log grows, and is read back for each
BACKUP_S_MAX: Final = patient(60)


class Fate(Enum):
    """What becomes of a command."""

    LET_BE = "let be"
    KILLED = "kill -9"
    FULL = "target full"
    BROKER_KILLED = "broker killed"
    BOTH_KILLED = "both killed"


HOW_OFTEN: Final = {
    Fate.LET_BE: 10, Fate.KILLED: 4, Fate.FULL: 2, Fate.BROKER_KILLED: 4, Fate.BOTH_KILLED: 1,
}  # fmt: skip


@dataclass(slots=True)
class Drill:
    """One broker, one place for backups."""

    crashes: Crashes
    place: Path
    rng: random.Random
    nursery: Nursery  # for brokers on what was restored
    fates: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)  # backups, by the fate of their command
    restored: int = 0
    messages: int = 0  # that were acknowledged before a backup, over all of them
    cut_off: int = 0  # commands that left a part behind
    seen: set[str] = field(default_factory=set)

    @property
    def repository(self) -> Repository:
        return Repository(DirectoryShelf(self.place))

    async def round(self) -> None:
        """Make one backup under load, with some fate; then check what there is."""
        [fate] = self.rng.choices(list(HOW_OFTEN), list(HOW_OFTEN.values()))
        self.fates[fate.value] += 1
        crashes = self.crashes
        before = crashes.ledger.clone()

        async def backup() -> None:
            nonlocal before
            await asyncio.sleep(self.rng.random() * 0.3)
            before = crashes.ledger.clone()
            await asyncio.to_thread(self._command, fate)

        load = Load(crashes.broker.endpoint, crashes.ledger, self.rng, crashes.topics, crashes.anew)
        await load.run(backup())
        crashes._complain(load.errors, End.SERVING)
        if not crashes.broker.running or self.rng.random() < 0.3:
            crashes._note(crashes.broker.kill(), End.SERVING)
            crashes.crashed()
            await asyncio.to_thread(crashes.broker.start)
        crashes.check()
        self.cut_off += bool(self.repository.names(PART))
        for name in self.repository.names():
            if name not in self.seen:
                self.seen.add(name)
                self.made[fate.value] += 1
                manifest = self.repository.manifest(name)
                await asyncio.to_thread(self._check, manifest, before, crashes.ledger.clone())

    def _command(self, fate: Fate) -> None:
        rng = self.rng
        words = ["backup", str(self.place), "--endpoint", self.crashes.broker.endpoint]
        words += ["--rate", str(rng.choice((2, 8, 64)))]
        words += ["--keep", "20"] * rng.randrange(2) + ["--through-broker"] * rng.randrange(2)
        command = [sys.executable, "-m", "latermq_cli", *words]
        if fate is Fate.FULL:
            limit = f'ulimit -f {FILE_BLOCKS_MAX}; exec "$@"'
            command = ["/bin/sh", "-c", limit, "sh", *command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if fate in (Fate.KILLED, Fate.BROKER_KILLED, Fate.BOTH_KILLED):
            self._wait_for_first(process)
            time.sleep(rng.random() * rng.choice((0.02, 0.2, 0.6)))
            if fate is not Fate.KILLED:
                os.kill(self.crashes.broker.pid, 9)
            if fate is not Fate.BROKER_KILLED:
                process.kill()
        _, said = process.communicate(timeout=BACKUP_S_MAX)
        assert process.returncode in ((0,) if fate is Fate.LET_BE else (0, 1, -9)), said
        assert b"Traceback" not in said, said
        assert b"unexpected" not in said, said

    def _wait_for_first(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the command writes to the target, or has ended."""
        pieces = self.place / "log"
        known = set(os.listdir(pieces)) if pieces.exists() else set()
        while process.poll() is None:
            if pieces.exists() and not known.issuperset(os.listdir(pieces)):
                return
            time.sleep(0.002)

    def _check(self, manifest: Manifest, before: Ledger, after: Ledger) -> None:
        """Restore a backup, start a broker on it, and compare.

        Raises:
            AssertionError: with what is missing or came back.
        """
        directory = Path(tempfile.mkdtemp(dir=self.place.parent))
        data = directory / "data"
        report = restored(self.repository, manifest, data)
        assert report.ok
        config = CONFIG.format(retention_ms=0)
        with BrokerProcess(data, config=config, nursery=self.nursery) as broker:
            broker.start()
            self._compare(broker.endpoint, before, after, manifest.taken_at_ms)
            ended = broker.terminate()
            assert ended.code == 0, ended.stderr
        shutil.rmtree(directory)
        self.restored += 1

    def _compare(self, endpoint: str, before: Ledger, after: Ledger, taken_ms: int) -> None:
        promised = set(before.stored(ALWAYS))
        settled = {
            message_id
            for (group, message_id), progress in before.progress.items()
            if group == WORKERS and progress.ack is Outcome.DONE
        }
        self.messages += len(promised)
        with WireClient(endpoint) as wire:
            for message_id in set(receive_ready(wire)):
                assert message_id not in settled, f"{message_id}: acknowledged, and given again"
            waiting = set(still_delayed(wire))
            drain(wire, after, AUDIT, lambda: not left_in(wire, AUDIT))
        there = waiting | {message_id for group, message_id in after.progress if group == AUDIT}
        missing = promised - there - old_enough(after)
        assert not missing, f"backup of {taken_ms}: {len(missing)} are missing: {missing}"
        assert not after.violations, "\n".join(after.violations)


def receive_ready(wire: WireClient) -> list[str]:
    """What the working group is given at once."""
    ids: list[str] = []
    while got := wire.receive(
        TOPIC, WORKERS, count_max=256, wait_ms=50, invisible_ms=600_000
    ).messages:
        ids += [message.system_properties.message_id for message in got]
        handles = [message.system_properties.receipt_handle for message in got]
        require_ok(wire.ack(TOPIC, WORKERS, *handles))
    return ids


def drilled(directory: Path, flush: str, rng: random.Random, backups: int) -> Drill:
    """Make and check so many backups of one broker. Raises AssertionError."""
    place = directory / "backups"
    with Nursery() as nursery, Nursery() as other:
        crashes = Crashes(directory / "data", flush, rng, nursery)
        drill = Drill(crashes, place, rng, other)

        async def rounds() -> None:
            for _ in range(ROUNDS_MAX * backups):
                if drill.restored >= backups:
                    return
                await drill.round()
            raise AssertionError(f"{drill.restored} of {backups} backups: {drill.fates}")

        with crashes.broker:
            crashes.prepare()
            asyncio.run(rounds())
            crashes.broker.kill()
        for name in drill.repository.names():  # what earlier ones have is as it was
            examined(drill.repository, drill.repository.manifest(name))
    crashes.check()
    return drill


def main() -> None:
    backups = int(os.environ.get("BACKUPS") or "100")
    seed = int(os.environ.get("SEED") or "1")
    print("| flush | backups | what became of their commands | all commands | messages checked |")
    print("|---|---|---|---|---|")
    for flush in os.environ.get("FLUSH", " ".join(FLUSHES)).split():
        began, restored, messages, parts = time.monotonic(), 0, 0, 0
        made: Counter[str] = Counter()
        fates: Counter[str] = Counter()
        while restored < backups // len(FLUSHES):
            rng = random.Random(f"{seed} {flush} {restored}")
            directory = Path(tempfile.mkdtemp(prefix="latermq-backups-"))  # kept, if it fails
            drill = drilled(directory, flush, rng, BACKUPS_OF_ONE)
            shutil.rmtree(directory)
            restored += drill.restored
            messages += drill.messages
            parts += drill.cut_off
            made += drill.made
            fates += drill.fates
        kept = f" (retention {RETENTION_MS[flush] // 1_000} s)" if flush in RETENTION_MS else ""
        print(
            f"| {flush}{kept} | {restored} | {_counts(made)} | {_counts(fates)}; {parts} left a "
            f"part | {messages:,}, {time.monotonic() - began:.0f} s |",
            flush=True,
        )


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


if __name__ == "__main__":
    main()
