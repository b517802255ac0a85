"""What happens to brokers and to the engine in a drill, one function each."""

import os
import signal
import time
from typing import Final

from confluent_kafka.admin import AdminClient

from cluster.drill import ANSWERS, KILLED, Drill
from support.broker_process import BrokerProcess

PAUSES_S: Final = (0.05, 0.3, 0.9, 1.6)  # of a slow owner; 2 s of silence and it is replaced
SLOW_S: Final = 8.0
OUTAGE_S: Final = 5.0  # of the engine
PROVEN_S: Final = 1.5  # no answer is OK so long after the engine went


def killed(drill: Drill) -> None:
    """kill -9 of the owner; it comes back as a standby."""

    def fault() -> BrokerProcess:
        os.kill(drill.owner.pid, signal.SIGKILL)
        return drill.who_serves()

    drill.under_load(fault, ends_with=KILLED)


def stopped(drill: Drill) -> None:
    """The owner's process stands still, and goes on when another one serves."""

    def fault() -> BrokerProcess:
        before = drill.owner
        before.pause()
        after = drill.who_serves()
        drill.senders.wait_more(ANSWERS, after.endpoint)
        before.go_on()
        return after

    drill.under_load(fault)


def slow(drill: Drill) -> None:
    """The owner's process stands still again and again, for a moment or for long."""

    def fault() -> BrokerProcess:
        until_s = time.monotonic() + SLOW_S
        while time.monotonic() < until_s:
            drill.owner.pause()
            time.sleep(drill.rng.choice(PAUSES_S))
            drill.owner.go_on()
            time.sleep(0.1)
        return drill.who_serves()

    drill.under_load(fault)


def leader_killed(drill: Drill) -> None:
    """kill -9 of the node of Kafka that leads the log's partition; it comes back."""

    def fault() -> BrokerProcess:
        leader = drill.kafka.nodes[leader_of(drill) - 1]
        leader.kill()
        after = drill.who_serves()
        leader.spawn()
        leader.wait_ready()
        return after

    drill.under_load(fault)


def engine_gone(drill: Drill) -> None:
    """kill -9 of two of the three nodes: nobody may answer; they come back, and somebody does."""

    def fault() -> BrokerProcess:
        nodes = drill.rng.sample(drill.kafka.nodes, 2)
        for node in nodes:
            node.kill()
        gone_s = time.monotonic()
        time.sleep(OUTAGE_S)
        answers = sum(each.at_s > gone_s + PROVEN_S for each in drill.senders.acknowledged)
        if answers:
            drill.complaints.append(f"{answers} OK answers without an engine")
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_ready()
        return drill.who_serves()

    drill.under_load(fault)


def rolling_restart(drill: Drill) -> None:
    """Each node of Kafka is stopped in order and started, one after another."""

    def fault() -> BrokerProcess:
        for node in drill.kafka.nodes:
            node.terminate()
            node.spawn()
            node.wait_ready()
            drill.who_serves()
        return drill.who_serves()

    drill.under_load(fault)


def leader_of(drill: Drill) -> int:
    """Ask Kafka which node leads the log."""
    topic = f"latermq.{drill.name}.log"
    admin = AdminClient({"bootstrap.servers": drill.kafka.bootstrap})
    return int(admin.list_topics(topic).topics[topic].partitions[0].leader)
