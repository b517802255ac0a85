"""Several shards at two machines, clients of several languages at work, and what happens to them.

The clients are `cluster.fleet`'s; beside them go senders who ask each shard's owner and time it.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from click.testing import CliRunner

from cluster.drill import ANSWERS, more_settings
from cluster.fleet import Fleet, wait, wait_longer
from cluster.likeness import copies_of, differences, stop_alike
from latermq_broker.runtime import CLEAN
from latermq_cli.root import latermq
from support.cluster_process import ClusterProcess
from support.kafka.cluster import KafkaCluster
from support.site import Site
from support.steady_senders import SteadySenders, drained, story_of

SHARDS: Final = 3
MACHINES: Final = 2
CHANGES: Final = ("shard stands by shard={}", "shard serves shard={}")


class Address(NamedTuple):
    """Where a shard may be served."""

    endpoint: str


class ShardDrill:
    """Machines, their clients, and what was promised.

    Args:
        room: where directories are made; the cluster has its name.
        named: clients are given a name that stands for both machines, not their addresses.
    """

    def __init__(self, room: Path, kafka: KafkaCluster, rng: random.Random, *, named: bool) -> None:
        more = more_settings(len(kafka.nodes))
        self.site = Site(room, kafka, room.name, SHARDS, MACHINES, more, named=named)
        self.rng = rng
        self.silences_s: list[float] = []  # of each fault: the longest without an OK of a shard
        self.waits_s: list[float] = []  # of each fault: the longest without one at a client
        self.replaced = 0  # so many owners
        self.failed = Counter[str]()  # sends that a client gave up, by topic
        self.again = 0  # deliveries of what had been delivered
        self.complaints: list[str] = []
        self.owners: list[str] = []  # where each shard is served
        self._fleet = Fleet(room / "clients", self.site.endpoint, self.site.prefix)
        self._senders = [SteadySenders(*map(Address, addresses)) for addresses in self.site.shards]

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Have machines and clients at work."""
        for machine in self.site.machines:
            machine.spawn()
        for machine in self.site.machines:
            self.stands_by(machine, dict.fromkeys(range(SHARDS), 0))
        self.look()
        self._fleet.start(self.owners[0])
        for senders in self._senders:
            senders.start()

    def __exit__(self, *_: object) -> None:
        for senders in self._senders:
            senders.__exit__()
        self._fleet.__exit__()
        for machine in self.site.machines:
            machine.__exit__()

    def look(self) -> None:
        """Wait until each shard has an owner; note where."""
        self.owners = asyncio.run(self.site.owners())

    def machine_of(self, shard: int) -> ClusterProcess:
        """The one that serves it."""
        return self.site.machines[self.site.shards[shard].index(self.owners[shard])]

    def changes(self, machine: ClusterProcess) -> dict[int, int]:
        """How often each of its shards began to serve or to stand by."""
        said = machine.log_path.read_text(encoding="utf-8")
        return {
            shard: sum(said.count(each.format(shard)) for each in CHANGES)
            for shard in range(SHARDS)
        }

    def stands_by(self, machine: ClusterProcess, before: dict[int, int]) -> None:
        """Wait until each of these shards of its serves, or could, once more than before."""

        def again() -> bool:
            now = self.changes(machine)
            return all(now[shard] > count for shard, count in before.items())

        wait(again, "a machine to stand by")

    def under_load(self, fault: Callable[[], None]) -> None:
        """Do something to machines or shards while clients work; then check what they know."""
        self.look()
        self._serving()
        began = [len(senders.acknowledged) for senders in self._senders]
        since_s = self._fleet.fault()
        fault()
        self._serving()
        self._fleet.wait_more()
        for senders, first in zip(self._senders, began, strict=True):
            story = story_of(senders.acknowledged[first - 1 :])
            self.silences_s.append(story.silence_s)
            self.replaced += story.new_owners
            if story.late:
                self.complaints.append(f"{story.late} OK answers behind the next owner's first")
        self.waits_s += [member.silence_s(since_s) for member in self._fleet.members]
        self.failed.update(self._fleet.failures(since_s))
        assert not self.complaints, "\n".join(self.complaints)

    def read_back(self) -> int:
        """Receive everything there is, and compare machines; return how much was promised.

        Raises AssertionError with every promise broken.
        """
        self.complaints += self._fleet.drain()
        for senders in self._senders:
            senders.__exit__()
        self.look()
        promised, self.again = self._fleet.promised(), self._fleet.again()
        for senders, owner in zip(self._senders, self.owners, strict=True):
            sent = {each.message_id for each in senders.acknowledged}
            received = drained(owner)
            promised += len(sent)
            if sent - set(received):
                self.complaints.append(f"{len(sent - set(received))} of {owner} are lost")
            if len(received) > len(set(received)):
                self.complaints.append(f"what {owner} was told is done came again")
        self._compare()
        assert not self.complaints, "\n".join(self.complaints)
        return promised

    def _compare(self) -> None:
        """Stop all machines for good, and see what each knows of each shard."""
        logs = [
            [machine.data_dir / str(shard) for machine in self.site.machines]
            for shard in range(SHARDS)
        ]
        stop_alike(lambda: self._tell(signal.SIGSTOP), lambda: self._tell(signal.SIGCONT), logs)
        for machine in self.site.machines:
            machine.crash()
        config = self.site.machines[0].data_dir.with_name("0.toml")
        for directories in logs:
            self.complaints += differences(copies_of(directories), config)

    def _tell(self, number: int) -> None:
        for machine in self.site.machines:
            for pid in (machine.pid, *machine.pids().values()):
                os.kill(pid, number)

    def _serving(self) -> None:
        """Wait until every shard takes what is sent."""
        for senders in self._senders:
            wait_longer(senders.acknowledged, ANSWERS, "a shard to be served")


def handed_over(drill: ShardDrill) -> None:
    """One shard's owner is asked to hand it over; it goes on as a standby."""
    shard = drill.rng.randrange(SHARDS)

    def fault() -> None:
        machine = drill.machine_of(shard)
        before = {shard: drill.changes(machine)[shard]}
        words = ["cluster", "hand-over", "--endpoint", drill.owners[shard]]
        result = CliRunner().invoke(latermq, words)
        if result.exit_code:
            drill.complaints.append(result.output)
        drill.stands_by(machine, before)

    drill.under_load(fault)


def ended(drill: ShardDrill) -> None:
    """A machine that serves something is told to end, in order; it comes back, and stands by."""

    def fault() -> None:
        machine = drill.machine_of(drill.rng.randrange(SHARDS))
        stopped = machine.terminate()
        if stopped.code != CLEAN:
            drill.complaints.append(f"it ended with {stopped.code}\n{stopped.stderr}")
        _again(drill, machine)

    drill.under_load(fault)


def machine_killed(drill: ShardDrill) -> None:
    """kill -9 of all that a machine has; it comes back, and stands by."""

    def fault() -> None:
        machine = drill.machine_of(drill.rng.randrange(SHARDS))
        machine.crash()
        _again(drill, machine)

    drill.under_load(fault)


def shard_killed(drill: ShardDrill) -> None:
    """kill -9 of one shard's owner, which its supervisor starts again."""

    def fault() -> None:
        shard = drill.rng.randrange(SHARDS)
        machine = drill.machine_of(shard)
        before = {shard: drill.changes(machine)[shard]}
        machine.kill_shard(shard)
        drill.stands_by(machine, before)

    drill.under_load(fault)


def _again(drill: ShardDrill, machine: ClusterProcess) -> None:
    """Start a machine when others serve what it had."""
    drill.look()
    before = drill.changes(machine)
    machine.spawn()
    drill.stands_by(machine, before)
