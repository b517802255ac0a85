"""`latermq serve` with `[replication]`: an owner is killed, a copy damaged, a log adopted."""

import json
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from latermq_broker.runtime import CLEAN
from latermq_broker.store.directory import LOG_NAME
from latermq_cli.root import latermq
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

COUNT = 40


def test_a_standby_serves_what_the_killed_owner_acknowledged(tmp_path: Path, config: str) -> None:
    with BrokerProcess(tmp_path / "a", config=config) as a:
        a.start()
        with BrokerProcess(tmp_path / "b", config=config) as b:
            b.spawn()
            ids = send(a)
            (standby,) = wait_members(a, "standby")
            wait_ready_standby(a)
            assert standby["name"].partition(":")[2] == str(b.data_dir)
            a.kill()
            b.wait_ready()
            require_received(b, ids)
            (before,) = wait_members(b, "owner")
            assert before["name"].partition(":")[2] == str(a.data_dir)
            assert b.terminate().code == CLEAN


def test_a_brokers_own_log_becomes_a_replicated_one(tmp_path: Path, config: str) -> None:
    """Its directory is the last owner's, and a standby that begins with nothing has all of it."""
    with BrokerProcess(tmp_path / "a") as alone:
        alone.start()
        ids = send(alone)
        assert alone.terminate().code == CLEAN
    shipped = offline(tmp_path, config, "adopt", "--json")
    assert shipped.exit_code == 0, shipped.stderr
    assert "shipped" in shipped.stderr
    with BrokerProcess(tmp_path / "a", config=config) as a:
        a.start()
        ids += send(a)
        assert json.loads(offline(tmp_path, config, "verify", "--json").stdout)["ok"]
        with BrokerProcess(tmp_path / "b", config=config) as b:
            b.spawn()
            wait_members(a, "standby")
            a.kill()
            b.wait_ready()
            require_received(b, ids)
            assert b.terminate().code == CLEAN


def send(broker: BrokerProcess) -> list[str]:
    """Send messages; their ids."""
    ids: list[str] = []
    with WireClient(broker.endpoint) as client:
        for number in range(COUNT):
            message = wire_requests.message("orders", b"%d" % number)
            require_ok(client.send(message))
            ids.append(message.system_properties.message_id)
    return ids


def require_received(broker: BrokerProcess, ids: list[str]) -> None:
    """Have a group get each of the messages once."""
    received: list[str] = []
    with WireClient(broker.endpoint) as client:
        while len(received) < len(ids):
            got = client.receive("orders", "billing", wait_ms=1_000).messages
            handles = [each.system_properties.receipt_handle for each in got]
            if handles:
                require_ok(client.ack("orders", "billing", *handles))
            received += [each.system_properties.message_id for each in got]
    assert sorted(received) == sorted(ids)


def wait_members(broker: BrokerProcess, role: str) -> list[dict[str, Any]]:
    """Return the others that `broker` knows, when it knows of one in this role."""
    until_s = time.monotonic() + patient(30)
    while True:
        shown = CliRunner().invoke(
            latermq, ["cluster", "show", "--json", "--endpoint", broker.endpoint]
        )
        members: list[dict[str, Any]] = json.loads(shown.stdout)["shards"][0]["members"]
        if any(member["role"] == role for member in members):
            return members
        assert time.monotonic() < until_s, shown.stdout
        time.sleep(0.02)


def wait_ready_standby(broker: BrokerProcess) -> None:
    """Wait until it says of the only standby that this one could take over, with all of the log."""
    until_s = time.monotonic() + patient(30)
    words = ("cluster", "standby", "--json", "--endpoint", broker.endpoint)
    while True:
        shown = CliRunner().invoke(latermq, words)
        (standby,) = json.loads(shown.stdout)["shards"][0]["standbys"]
        if standby["ready"] and not standby["behind_bytes"]:
            assert (standby["behind_ms"], standby["lag_entries"]) == (0, 0)
            assert standby["checkpoint"] is not None
            return
        assert time.monotonic() < until_s, shown.stdout
        time.sleep(0.1)


def test_a_damaged_copy_is_mended_from_the_engine(tmp_path: Path, config: str) -> None:
    with BrokerProcess(tmp_path / "a", config=config) as a:
        a.start()
        with WireClient(a.endpoint) as client:
            for number in range(COUNT):
                require_ok(client.send(wire_requests.message("orders", b"body-%d" % number)))
        assert a.terminate().code == CLEAN
        a.start()  # it knows now what of it Kafka has
        assert a.terminate().code == CLEAN
        (segment,) = (tmp_path / "a" / LOG_NAME).glob("*.seg")
        whole = segment.read_bytes()
        at = whole.index(b"body-7")
        segment.write_bytes(whole[:at] + b"B" + whole[at + 1 :])
        damaged = offline(tmp_path, config, "verify")
        assert damaged.exit_code == 1
        assert f"position {at} to {at + 1}" in damaged.stdout
        mended = offline(tmp_path, config, "verify", "--repair", "--json")
        assert (mended.exit_code, json.loads(mended.stdout)["repaired"]) == (0, True)
        assert segment.read_bytes() == whole
        a.start()
        sound = offline(tmp_path, config, "verify", "--json")  # beside the broker, which is at work
        assert json.loads(sound.stdout)["differences"] == []
        with WireClient(a.endpoint) as client:
            first = client.receive("orders", "billing", wait_ms=1_000).messages
            assert b"body-7" in [message.body for message in first]
        a.kill()


def offline(path: Path, config: str, verb: str, *words: str) -> Result:
    file = path / "offline.toml"
    file.write_text(config)
    line = ["cluster", verb, str(path / "a"), "--config", str(file), *words]
    return CliRunner().invoke(latermq, line)
