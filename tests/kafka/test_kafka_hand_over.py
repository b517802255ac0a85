"""The owner of a log at Kafka hands it over while the official client sends: none is given up."""

import time
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from interop.official import OfficialClient
from kafka.test_kafka_replicas import wait_members
from latermq_cli.root import latermq
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports
from support.machine import patient

HAND_OVERS: Final = 4  # there and back: to the second of the addresses, and to the first
SENDS: Final = 60
PAUSE_MS: Final = 40


def test_no_send_is_given_up_in_a_hand_over(tmp_path: Path, config: str, name: str) -> None:
    """It tries three times, at once, and then an application is told that it was in vain.

    A machine that stands still for 0.1 s may open a port too late, but hardly twice.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with (
        BrokerProcess(tmp_path / "a", config=config, listen=addresses[0]) as a,
        BrokerProcess(tmp_path / "b", config=config, listen=addresses[1]) as b,
        OfficialClient(tmp_path / "python") as client,
    ):
        a.start()
        b.spawn()
        sent: set[str] = set()
        failed: list[int] = []
        client.call("producer", name=name, endpoint=";".join(addresses), topics=[name])
        for number in range(HAND_OVERS):
            old = (a, b)[number % 2]
            wait_members(old, "standby")
            sending = client.begin(
                "send_many", names=[name], topic=name, prefix=f"{number}-", count=SENDS,
                pause_ms=PAUSE_MS,
            )  # fmt: skip
            time.sleep(0.2)
            words = ("cluster", "hand-over", "--endpoint", old.endpoint)
            assert CliRunner().invoke(latermq, words).exit_code == 0
            sent |= set(sending.result(patient(60)))
            failed.append(sum(event["event"] == "send failed" for event in client.events))
        assert len(set(failed) - {0}) <= 1, f"given up after each hand-over, in all: {failed}"
        assert len(sent) == HAND_OVERS * SENDS
