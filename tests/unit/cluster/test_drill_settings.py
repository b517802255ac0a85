"""What the long drill over shards tells its brokers and clients: it is run seldom, and by hand."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.drill import more_settings
from latermq_broker.config.toml_file import load
from support.site import NAME, Site

SHARDS = 3
MACHINES = 2
ADDRESSES_OF = """
import socket, sys
print(*{each[4][0] for each in socket.getaddrinfo(*sys.argv[1:])})
"""


def site(path: Path, *, named: bool) -> Site:
    kafka: Any = SimpleNamespace(bootstrap="127.0.0.1:9092")
    return Site(path, kafka, "shop", SHARDS, MACHINES, more_settings(1), named=named)


@pytest.mark.parametrize("named", [False, True])
def test_brokers_take_what_they_are_told(tmp_path: Path, *, named: bool) -> None:
    it = site(tmp_path, named=named)
    told = [load(tmp_path / f"{number}.toml", {}, {}) for number in range(MACHINES)]
    assert {each.replication.replicas for each in told} == {1}
    assert [each.cluster.machine for each in told] == list(range(MACHINES))
    assert {each.cluster.machines for each in told} == {tuple(it.shards[0])}
    names = [f"{NAME}:{entry[0].rpartition(':')[2]}" for entry in it.shards]
    assert {each.cluster.advertise for each in told} == {tuple(names) if named else ()}
    assert it.endpoint == (names[0] if named else ";".join(it.shards[0]))
    places = [address for entry in it.shards for address in entry]
    assert len(set(places)) == SHARDS * MACHINES


def test_the_name_stands_for_all_machines_where_clients_are(tmp_path: Path) -> None:
    prefix = site(tmp_path, named=True).prefix
    if os.geteuid() or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("no file can be mounted here")
    words = [*prefix, sys.executable, "-c", ADDRESSES_OF, NAME, "80"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert set(said.split()) == {"127.0.0.1", "127.0.0.2"}
