"""`docker compose up` of the files in docker/, for real: `make compose-test`."""

import re
from pathlib import Path

import pytest

from docker.engine import Docker, Project


@pytest.mark.usefixtures("images")
def test_the_shop_runs_and_survives_its_brokers_death(docker: Docker, tmp_path: Path) -> None:
    with Project(docker, tmp_path, "compose.yaml") as shop:
        shop.wait_logs("billing", "CardExpiredError")
        shop.wait_logs("report", "Spark read")
        before = dead(shop)
        assert before
        shop.run("kill", "-s", "KILL", "broker")
        shop.run("start", "broker")
        shop.wait_logs("broker", "latermq ready on", 2)
        billed = shop.run("logs", "--no-color", "billing").count("billed")
        shop.wait_logs("billing", "billed", billed + 1)
        assert before <= dead(shop)
        assert re.fullmatch(r"127\.0\.0\.1:\d+\s*", shop.run("port", "broker", "8081"))


def dead(shop: Project) -> set[str]:
    """The ids of billing's dead letters, by the command line in the broker's container."""
    said = shop.run("exec", "-T", "broker", "latermq", "dead", "list", "billing", "--json")
    return set(re.findall(r'"message_id": ?"(\w+)"', said))


@pytest.mark.usefixtures("images")
def test_a_broker_is_killed_with_its_shards_twice(docker: Docker, tmp_path: Path) -> None:
    with Project(docker, tmp_path, "compose.cluster.yaml") as cluster:
        cluster.wait_logs("billing", "billed")
        for _ in range(2):
            said = cluster.run("run", "--rm", "failover")
            print(said)
            before, *after = re.findall(r"(broker-\d):8081 owns", said)
            assert after
            assert before not in after
            assert "120 were acknowledged, all of them came, 0 twice" in said
        billed = cluster.run("logs", "--no-color", "billing").count("billed")
        cluster.wait_logs("billing", "billed", billed + 1)
