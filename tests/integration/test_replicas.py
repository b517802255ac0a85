"""Two brokers and a replicated log: the owner dies, is stopped, or the log does not answer."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from latermq_broker.config.config import Config, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.runtime import CLEAN, TRY_AGAIN
from latermq_broker.store.directory import LOG_NAME, REPLICA_NAME, take_lock
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store
from latermq_cli.root import latermq
from latermq_proto.latermq.v1 import pending_pb2
from support import retention_story, wire_requests
from support.broker_process import BrokerProcess
from support.engine_facts import facts
from support.machine import patient
from support.replica_process import LogServerProcess, ReplicaProcess
from support.steady_senders import TOPIC, SteadySenders, drained
from support.wire_client import WireClient, now_ms, require_ok

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@pytest.fixture
def log_server() -> Iterator[LogServerProcess]:
    with LogServerProcess() as log_server:
        yield log_server


def log_bytes(directory: Path) -> bytes:
    """The log's files, one after another, without the zeros behind its end."""
    files = sorted((directory / LOG_NAME).glob("*.seg"))
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


def test_a_killed_owner_is_replaced_and_nothing_is_lost(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    with (
        ReplicaProcess(tmp_path / "a", log_server) as a,
        ReplicaProcess(tmp_path / "b", log_server) as b,
    ):
        a.start()
        b.spawn()
        b.wait_log("following")
        with SteadySenders(a, b) as load:
            load.wait_more(20, a.endpoint)
            a.kill()
            b.wait_ready()
            load.wait_more(20, b.endpoint)
            a.spawn()  # a standby now, with a tail that may have to be cut off
            a.wait_log("following")
            load.wait_more(20, b.endpoint)
            b.kill()
            a.wait_ready()
            load.wait_more(20, a.endpoint)
        acknowledged = [sent.message_id for sent in load.acknowledged]
        received = drained(a.endpoint)
        assert set(acknowledged) <= set(received)
        assert len(received) == len(set(received))
        with ReplicaProcess(tmp_path / "c", log_server) as c:  # from the log alone
            c.spawn()
            c.wait_log("following")
            assert a.terminate().code == CLEAN
            c.wait_ready()
            assert (
                drained(c.endpoint) == []
            )  # what was acknowledged by consumers does not come again
            c.kill()
        whole = log_bytes(tmp_path / "c")
        copy = log_bytes(tmp_path / "a")
        assert len(copy) > 10_000
        assert whole.startswith(copy)


def test_a_log_is_handed_over_and_back(tmp_path: Path, log_server: LogServerProcess) -> None:
    """First by an operator, then by the end of the process."""
    with (
        ReplicaProcess(tmp_path / "a", log_server) as a,
        ReplicaProcess(tmp_path / "b", log_server) as b,
    ):
        first = a.start().endpoint
        b.spawn()
        b.wait_log("follows with an engine")
        with SteadySenders(a, b) as load:
            load.wait_more(20, first)
            words = ("cluster", "hand-over", "--json", "--endpoint", first)
            result = CliRunner().invoke(latermq, words)
            assert json.loads(result.stdout) == {"cluster": "test", "epoch": 1, "owner": first}
            a.wait_log("handed over")
            b.wait_ready()
            load.wait_more(20, b.endpoint)
            a.wait_log("follows with an engine")
            assert b.terminate().code == CLEAN
            until_s = time.monotonic() + patient(30)
            while a.endpoint == first:
                assert time.monotonic() < until_s, "nobody takes the log"
                time.sleep(0.02)
            load.wait_more(20, a.endpoint)
        for old, new in pairwise((first, b.endpoint, a.endpoint)):
            new_s = min(sent.at_s for sent in load.acknowledged if sent.endpoint == new)
            old_s = max(sent.began_s for sent in load.acknowledged if sent.endpoint == old)
            assert old_s < new_s, "it took a call when another owner had answered one"
        received = drained(a.endpoint)
        assert {sent.message_id for sent in load.acknowledged} <= set(received)
        assert len(received) == len(set(received))


def test_replicas_are_replaced_one_after_the_other(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    """An owner that has no standby, one that has one, and a standby, which no client notices."""
    a, a2, a3 = (ReplicaProcess(tmp_path / "a", log_server) for _ in range(3))
    with a, a2, a3, ReplicaProcess(tmp_path / "b", log_server) as b, ExitStack() as later:
        with SteadySenders(a, a2, a3, b) as load:
            first = a.start().endpoint
            load.wait_more(20, first)
            a2.spawn("--replace")
            assert a.wait_end().code == CLEAN
            second = a2.wait_ready()
            load.wait_more(20, second)
            b.spawn()
            b.wait_log("follows with an engine")
            a3.spawn("--replace")
            assert a2.wait_end().code == CLEAN
            until_s = time.monotonic() + patient(30)
            while not (b.serves or a3.serves):  # b, unless it is held up until a3 has started
                assert time.monotonic() < until_s, "nobody takes the log"
                time.sleep(0.02)
            owner, standby = (b, a3) if b.serves else (a3, b)
            third = owner.wait_ready()
            load.wait_more(20, third)
            standby.wait_log("follows with an engine")
            fresh = later.enter_context(ReplicaProcess(standby.data_dir, log_server))
            fresh.spawn("--replace")
            assert standby.wait_end().code == CLEAN
            fresh.wait_log("follows with an engine")
            load.wait_more(20, third)
        owner.kill()
        owners = (first, second, third)
        for old, new in pairwise(owners):
            new_s = min(sent.at_s for sent in load.acknowledged if sent.endpoint == new)
            old_s = max(sent.began_s for sent in load.acknowledged if sent.endpoint == old)
            assert old_s < new_s, "it took a call when another owner had answered one"
        assert {sent.endpoint for sent in load.acknowledged} == set(owners)
        received = drained(fresh.wait_ready())
        assert {sent.message_id for sent in load.acknowledged} <= set(received)
        assert len(received) == len(set(received))


def test_a_replica_that_waits_to_replace_another_heeds_a_signal(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    directory, files = tmp_path / "a", RealFiles()
    directory.mkdir()
    lock = take_lock(files, directory)
    try:
        with ReplicaProcess(directory, log_server) as replica:
            replica.spawn("--replace")
            replica.wait_log("waiting for the broker that has the directory")
            ended = replica.terminate()
    finally:
        files.close(lock)
    assert ended.code == CLEAN
    assert "standing by" not in ended.stdout


def test_a_broker_with_a_log_of_its_own_is_not_replaced_by_a_replica(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    with (
        BrokerProcess(tmp_path / "a") as alone,
        ReplicaProcess(tmp_path / "a", log_server) as replica,
    ):
        endpoint = alone.start().endpoint
        replica.spawn("--replace")
        ended = replica.wait_end()
        assert ended.code != CLEAN
        assert "serves a log that is its own" in ended.stderr
        with WireClient(endpoint) as client:
            require_ok(client.send(wire_requests.message(TOPIC, b"still there")))


def test_a_replicated_log_becomes_a_brokers_own(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    """The note goes from the directory of the last owner, and the broker goes on alone."""
    with ReplicaProcess(tmp_path / "a", log_server) as owner:
        with SteadySenders(owner) as load, WireClient(owner.start().endpoint) as client:
            late = wire_requests.message(TOPIC, b"late", deliver_at_ms=now_ms() + HOUR_MS)
            require_ok(client.send(late))
            load.wait_more(20, owner.endpoint)
            leased = client.receive(TOPIC, "audit", invisible_ms=HOUR_MS).messages
        assert owner.terminate().code == CLEAN
    with BrokerProcess(tmp_path / "a") as alone:
        alone.spawn()
        assert "is a copy of a replicated log" in alone.wait_end().stderr
        (tmp_path / "a" / REPLICA_NAME).unlink()
        endpoint = alone.start().endpoint
        with WireClient(endpoint) as client:
            waiting = client.call(client.pending.ListPending, pending_pb2.ListPendingRequest())
            assert late.system_properties.message_id in [
                each.message_id for each in waiting.messages
            ]
            handles = [message.system_properties.receipt_handle for message in leased]
            require_ok(client.ack(TOPIC, "audit", *handles))
        received = drained(endpoint)
        assert {sent.message_id for sent in load.acknowledged} <= set(received)
        assert len(received) == len(set(received))


def test_an_owner_that_was_stopped_ends_when_it_goes_on(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    with (
        ReplicaProcess(tmp_path / "a", log_server) as a,
        ReplicaProcess(tmp_path / "b", log_server) as b,
    ):
        a.start()
        b.spawn()
        b.wait_log("following")
        with SteadySenders(a, b) as load:
            load.wait_more(20, a.endpoint)
            a.pause()
            b.wait_ready()
            load.wait_more(20, b.endpoint)
            a.go_on()
            ended = a.wait_end()
            load.wait_more(20, b.endpoint)
        assert ended.code == TRY_AGAIN
        assert "another broker has taken over this shard" in ended.stderr
        first_s = min(sent.at_s for sent in load.acknowledged if sent.endpoint == b.endpoint)
        late = [sent for sent in load.acknowledged if sent.endpoint != b.endpoint]
        assert max(sent.at_s for sent in late) < first_s
        assert {sent.message_id for sent in load.acknowledged} <= set(drained(b.endpoint))


def test_without_an_engine_nobody_serves_and_with_it_the_owner_goes_on(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    with (
        ReplicaProcess(tmp_path / "a", log_server) as a,
        ReplicaProcess(tmp_path / "b", log_server) as b,
    ):
        a.start()
        b.spawn()
        b.wait_log("following")
        with SteadySenders(a) as load:
            load.wait_more(20, a.endpoint)
            log_server.pause()
            a.wait_log("does not serve")
            before = load.count(a.endpoint)
            a.wait_log(
                "the replicated log did not take a batch"
            )  # later than a standby's patience ends
            assert load.count(a.endpoint) == before
            log_server.go_on()
            load.wait_more(20, a.endpoint)
        assert not b.serves
        assert {sent.message_id for sent in load.acknowledged} <= set(drained(a.endpoint))


def test_a_log_whose_front_was_dropped_fills_an_empty_directory(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    story = retention_story.config()
    with ReplicaProcess(tmp_path / "a", log_server, story) as a:
        a.start()
        with WireClient(a.endpoint) as client:
            late = wire_requests.message(TOPIC, b"late", deliver_at_ms=now_ms() + HOUR_MS)
            require_ok(client.send(late))
            filler = [wire_requests.message("filler", bytes(4_096))] * 60
            while "the replicated log is trimmed" not in a.log_path.read_text(encoding="utf-8"):
                require_ok(client.send(*filler))
                time.sleep(0.1)
        with ReplicaProcess(tmp_path / "b", log_server, story) as b:
            b.spawn()
            b.wait_log("following")
            a.kill()
            b.wait_ready()
            with WireClient(b.endpoint) as client:
                request = pending_pb2.ListPendingRequest()
                waiting = client.call(client.pending.ListPending, request).messages
            assert [each.message_id for each in waiting] == [late.system_properties.message_id]
        assert int(min((tmp_path / "b" / LOG_NAME).iterdir()).stem.split("-")[0]) > 0


def test_a_standby_deletes_what_the_owner_dropped_and_is_what_the_owner_is(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    story = retention_story.config()
    with (
        ReplicaProcess(tmp_path / "a", log_server, story) as a,
        ReplicaProcess(tmp_path / "b", log_server, story) as b,
    ):
        a.start()
        b.spawn()
        with WireClient(a.endpoint) as client:
            require_ok(client.send(wire_requests.message(TOPIC, b"leased")))
            late = wire_requests.message(TOPIC, b"late", deliver_at_ms=now_ms() + HOUR_MS)
            require_ok(client.send(late))
            assert client.receive(TOPIC, "billing", invisible_ms=HOUR_MS).messages
            filler = [wire_requests.message("filler", bytes(4_096))] * 60
            b.wait_log("follows with an engine")
            until_s = time.monotonic() + patient(60)
            while last_segment(tmp_path / "b") is None or first_base(tmp_path / "b") == 0:
                assert time.monotonic() < until_s, "the standby deletes nothing"
                require_ok(client.send(*filler))
                time.sleep(0.1)
        until_s = time.monotonic() + patient(60)
        while not both_stopped_at_one_position(a, b, tmp_path):
            assert time.monotonic() < until_s, "the standby does not catch up"
        a.kill()
        b.kill()
    owner, standby = (state_of(tmp_path / name) for name in ("a", "b"))
    assert owner["deliveries"]
    assert standby == owner


def both_stopped_at_one_position(a: ReplicaProcess, b: ReplicaProcess, tmp_path: Path) -> bool:
    """Stop both; if one has written more than the other has read, let them go on."""
    a.pause()
    b.pause()
    same = last_segment(tmp_path / "a") == last_segment(tmp_path / "b")
    if not same:
        b.go_on()
        a.go_on()
        time.sleep(0.2)
    return same


def first_base(directory: Path) -> int:
    return int(min((directory / LOG_NAME).glob("*.seg")).stem)


def last_segment(directory: Path) -> tuple[str, bytes] | None:
    """The name and the bytes of the segment that is written; None: there is none yet."""
    files = sorted((directory / LOG_NAME).glob("*.seg"))
    return (files[-1].name, files[-1].read_bytes()) if files else None


def state_of(directory: Path) -> dict[str, object]:
    """What a broker that starts there knows, at one moment, by its own checkpoint."""
    config = Config(store=StoreConfig(segment_bytes=1 << 20, message_body_bytes_max=1 << 17))
    store = Store.open(directory, config.store, RealFiles(), START_MS)
    engine = Engine.open(store, config, START_MS)
    try:
        assert engine.recovery is not None
        assert not engine.recovery.rebuilt
        return facts(engine)
    finally:
        engine.abandon()
