"""What happens to brokers and to Kafka in a drill, one function each."""

import os
import shutil
import signal
import time
from contextlib import suppress
from typing import Final

from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from cluster.drill import ANSWERS, KILLED, Drill
from cluster.places import dropped
from latermq_broker.runtime import CLEAN
from latermq_cli.root import latermq

PAUSES_S: Final = (0.05, 0.3, 0.9, 1.6)  # of a slow owner; 2 s of silence and it is replaced
SLOW_S: Final = 8.0
OUTAGE_S: Final = 5.0  # of Kafka
PROVEN_S: Final = 1.5  # no answer is OK so long after Kafka went


def killed(drill: Drill) -> None:
    """kill -9 of the owner; it comes back as a standby."""

    def fault() -> None:
        os.kill(drill.owner.pid, signal.SIGKILL)

    drill.under_load(fault, ends_with=KILLED)


def handed_over(drill: Drill) -> None:
    """The owner is asked to hand the log over; it goes on as a standby."""

    def fault() -> None:
        words = ["cluster", "hand-over", "--endpoint", drill.owner.endpoint]
        result = CliRunner().invoke(latermq, words)
        if result.exit_code:
            drill.complaints.append(result.output)

    drill.under_load(fault, ends_with=None)


def ended(drill: Drill) -> None:
    """The owner is told to end, in order; it comes back as a standby."""

    def fault() -> None:
        os.kill(drill.owner.pid, signal.SIGTERM)

    drill.under_load(fault, ends_with=CLEAN)


def stopped(drill: Drill) -> None:
    """The owner's process stands still, and goes on when another one serves."""

    def fault() -> None:
        before = drill.owner
        before.pause()
        after = drill.who_serves()
        drill.senders.wait_more(ANSWERS, after.endpoint)
        before.go_on()

    drill.under_load(fault)


def slow(drill: Drill) -> None:
    """The owner's process stands still again and again, for a moment or for long."""

    def fault() -> None:
        until_s = time.monotonic() + SLOW_S
        while time.monotonic() < until_s:
            drill.owner.pause()
            time.sleep(drill.rng.choice(PAUSES_S))
            drill.owner.go_on()
            time.sleep(0.1)

    drill.under_load(fault)


def cannot_write(drill: Drill) -> None:
    """Nothing of the owner's reaches Kafka, which reaches the owner; clients reach it, too."""
    _cut_off(drill, "OUTPUT")


def cannot_read(drill: Drill) -> None:
    """Nothing of Kafka's reaches the owner, which reaches Kafka: its last batches stand there, and
    it does not know; clients reach it, too."""
    _cut_off(drill, "INPUT")


def _cut_off(drill: Drill, way: str) -> None:
    """Drop the owner's packets to Kafka or back, until another one serves."""

    def fault() -> None:
        with dropped(drill.place_of(drill.owner), way, drill.network.kafka):
            drill.senders.wait_more(ANSWERS, drill.who_serves().endpoint)

    drill.under_load(fault)


def not_heard(drill: Drill) -> None:
    """What the owner answers does not come to its clients: it stays the owner."""

    def fault() -> None:
        with dropped(drill.place_of(drill.owner), "OUTPUT", drill.network.clients):
            time.sleep(OUTAGE_S)

    drill.under_load(fault)


def standby_cut_off(drill: Drill) -> None:
    """The standby hears nothing of Kafka: it takes nothing over. Then it does, and the owner is
    killed."""

    def fault() -> None:
        [standby] = drill.standbys
        with dropped(drill.place_of(standby), "INPUT", drill.network.kafka):
            time.sleep(OUTAGE_S)

    drill.under_load(fault)
    killed(drill)


def exchanged(drill: Drill) -> None:
    """The standby goes for good, and another broker comes, with an empty directory: nobody notices.
    Then the owner is killed, and the new one has all there is."""

    def fault() -> None:
        [leaving] = drill.standbys
        stopped = leaving.terminate()
        if stopped.code != CLEAN:
            drill.complaints.append(f"a standby ended with {stopped.code}\n{stopped.stderr}")
        shutil.rmtree(leaving.data_dir)
        drill.stand_by(leaving)

    before = drill.who_serves()
    drill.under_load(fault)
    if drill.owner is not before:
        drill.complaints.append("a broker that came took the log from an owner that lived")
    killed(drill)


def leader_killed(drill: Drill) -> None:
    """kill -9 of the node of Kafka that leads the log's partition; it comes back."""

    def fault() -> None:
        leader = drill.kafka.nodes[leader_of(drill) - 1]
        leader.kill()
        drill.who_serves()
        leader.spawn()
        leader.wait_ready()

    drill.under_load(fault)


def engine_gone(drill: Drill) -> None:
    """kill -9 of two of the three nodes: nobody may answer; they come back, and somebody does."""

    def fault() -> None:
        nodes = drill.rng.sample(drill.kafka.nodes, 2)
        for node in nodes:
            node.kill()
        gone_s = time.monotonic()
        time.sleep(OUTAGE_S)
        answers = sum(each.at_s > gone_s + PROVEN_S for each in drill.senders.acknowledged)
        if answers:
            drill.complaints.append(f"{answers} OK answers without Kafka")
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_ready()

    drill.under_load(fault)


def rolling_restart(drill: Drill) -> None:
    """Each node of Kafka is stopped in order and started, one after another."""

    def fault() -> None:
        for node in drill.kafka.nodes:
            node.terminate()
            node.spawn()
            node.wait_ready()
            drill.who_serves()

    drill.under_load(fault)


def disk_full(drill: Drill) -> None:
    """The owner's disk has no room: sends are refused, and nobody takes over. Then it has room, the
    clients come, and it is killed."""
    owner = drill.owner = drill.who_serves()
    ballast = owner.data_dir / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    owner.wait_log("disk full: sends are refused")
    time.sleep(OUTAGE_S)
    ballast.unlink()
    owner.wait_log("disk has room again: sends are taken")
    if drill.who_serves() is not owner:
        drill.complaints.append("somebody took over from an owner whose disk was full")
    killed(drill)


def leader_of(drill: Drill) -> int:
    """Ask Kafka which node leads the log."""
    topic = f"latermq.{drill.name}.log"
    admin = AdminClient({"bootstrap.servers": drill.kafka.bootstrap})
    return int(admin.list_topics(topic).topics[topic].partitions[0].leader)
