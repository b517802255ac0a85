"""`latermq log dump` and `verify`, on a data directory as a broker leaves it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.delivery.halves import HalfEvent
from latermq_broker.engine.catalog.lites import Begin, Beginning
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import (
    Failure,
    Outgoing,
    ReceiveRequest,
    TagFilter,
    TopicType,
)
from latermq_broker.offline.log_commands import _last_stop, words_of
from latermq_broker.store.files import RealFiles
from latermq_broker.store.offline.inspect import Damage, VerifyReport
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.store import Store
from latermq_cli.root import latermq
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import schedule_pb2
from support.engine_rig import SMALL_STORE
from support.v1_rig import V1Rig

SECRET = "nobody-may-read-this"


class DiskRig(V1Rig):
    """A rig whose store is a real directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        super().__init__()

    def reopened(self) -> Engine:
        now_ms = SystemClock().now_ms()
        store = Store.open(self._directory, SMALL_STORE, RealFiles(), now_ms)
        return Engine.open(store, Config(store=SMALL_STORE), now_ms)


def run(*words: str) -> Result:
    return CliRunner().invoke(latermq, ["log", *words])


def two_filters_and_a_step(rig: DiskRig) -> None:
    """What two live consumers of one group want differs; then the wall clock steps."""
    blue, red = TagFilter(frozenset(["blue"])), TagFilter(frozenset(["red"]))
    tagged = [
        Outgoing("tags", b"*\x04body", b"*\x03m-9", "m-9", tag=tag) for tag in ("red", "blue")
    ]
    rig.engine.send(tagged, rig.now_ms)
    wants_blue = ReceiveRequest("tags", "tags", "c", 9, 1_000, filter=blue, wanted=(blue, red))
    rig.engine.receive(wants_blue, rig.now_ms)
    rig.engine.clock.stepped(60_000, rig.now_ms)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Every type of record that a broker of today writes."""
    path = tmp_path / "data"
    rig = DiskRig(path)
    rig.die("m-1", Failure("TimeoutError", "no answer"), tag="created")
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.ack(*rig.receive())
    rig.send_message("m-2", wait_ms=1_000, keys=["k-1"])
    rig.send_message("m-3", wait_ms=5_000)
    rig.engine.pending.cancel("m-3", rig.now_ms)
    rig.advance(1_000)
    (held,) = rig.receive()
    rig.engine.change_invisible("billing", held.handle, 5_000, rig.now_ms)
    rig.die("m-4", topic="mails")
    rig.engine.dead.drop("billing", [1], rig.now_ms)
    rig.engine.queues.commit("billing", "orders", 0, 1, rig.now_ms)
    rig.engine.groups.reset("billing", "orders", 0, rig.now_ms)
    rig.engine.topics.delete("mails", rig.now_ms)
    half = Outgoing("orders", b"*\x04body", b"*\x03m-5", "m-5")
    checked, committed = rig.engine.transactions.send([half, half], rig.now_ms)
    rig.engine.transactions.asked(checked.position, "client-1", rig.now_ms)
    commit = HalfEvent.COMMIT
    rig.engine.transactions.end("orders", committed.transaction_id, "m-5", commit, rig.now_ms)
    rig.engine.pending.cancel(checked.transaction_id, rig.now_ms)
    rig.engine.groups.create("ordered", fifo=True, max_attempts=0, backoff=None, now_ms=rig.now_ms)
    rig.engine.limits.set(Limit(scope=Scope.CLIENT, name="*", sends_per_s=9), rig.now_ms)
    rig.engine.limits.unset(Scope.CLIENT, "*", rig.now_ms)
    one = Outgoing("orders", b"*\x04body", b"*\x03m-6", "m-6", message_group="customer-7")
    for _ in range(2):
        rig.engine.send([one], rig.now_ms)
        rig.engine.receive(ReceiveRequest("ordered", "orders", "client-1", 9, 1_000), rig.now_ms)
    rig.engine.users.create("shop", SECRET, admin=False, now_ms=rig.now_ms)
    rig.engine.users.grant("shop", Kind.TOPIC, "orders-*", frozenset({Right.PUB}), rig.now_ms)
    sold = Outgoing("orders", b"*\x04body", b"*\x03m-9", "m-9")
    rig.engine.transactions.send([sold], rig.now_ms, rig.engine.users.get("shop"))
    rig.engine.users.delete("shop", rig.now_ms)
    rig.engine.topics.create("chat", TopicType.LITE, 0, rig.now_ms)
    agents = rig.engine.lites.bind("agents", "chat", rig.now_ms)
    lite = Outgoing("chat", b"*\x04body", b"*\x03m-7", "m-7", lite_topic="room-7")
    rig.engine.send([lite], rig.now_ms)
    rig.engine.lites.begin(agents, ["room-7"], Beginning(Begin.END), rig.now_ms)
    once = Outgoing("orders", b"*\x04body", b"*\x03m-8", "m-8", dedup_id="order-8")
    rig.engine.send([once], rig.now_ms)
    two_filters_and_a_step(rig)
    schedule = schedule_pb2.Schedule(name="report", topic="orders", every_ms=60_000)
    request = schedule_pb2.PutScheduleRequest(schedule=schedule)
    put = "/latermq.v1.Schedules/PutSchedule"
    assert rig.call(put, request, schedule_pb2.PutScheduleResponse).status.code == Code.OK
    rig.engine.close(rig.now_ms)
    rig.close()
    return path


def records(path: Path, *words: str) -> list[dict[str, object]]:
    result = run("dump", str(path), "--json", *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_users_are_shown_without_their_secrets(data: Path) -> None:
    made, granted, deleted = records(data, "--type", "access")
    assert made["user"] == "shop"
    assert granted["grants"] == ["topic:orders-*:pub"]
    assert deleted["deleted_user"] == "shop"
    for words in (("dump", "--json"), ("dump",), ("verify",), ("verify", "--json")):
        assert SECRET not in run(words[0], str(data), *words[1:]).output
    stored = b"".join(path.read_bytes() for path in data.rglob("*.seg"))
    assert SECRET.encode() in stored  # so that the lines above look for the right thing


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([7, 8, 9], "7..9"),
        ([7, 9, 8], "7,9,8"),
        (["group:g:sub", "topic:a:pub", "topic:b:pub"], "group:g:sub,topic:a:pub,topic:b:pub"),
        ([], ""),
    ],
)
def test_lists_are_shown(values: list[int] | list[str], shown: str) -> None:
    assert words_of({"grants": values}) == f"grants={shown}"


def test_lite_topics_are_named(data: Path) -> None:
    [moved] = records(data, "--type", "lite")
    assert (moved["topic"], moved["group"], moved["what"]) == (
        "chat", "agents", "goes on elsewhere",
    )  # fmt: skip
    [sent] = [one for one in records(data, "--type", "message") if "lite_topic" in one]
    assert sent["lite_topic"] == "room-7"


def test_every_record_is_explained(data: Path) -> None:
    dumped = records(data)
    types = {record["type"] for record in dumped}
    later = {"move", "drop", "lost", "blank"}
    assert types == {each.name.lower() for each in RecordType} - later
    assert [record["position"] for record in dumped] == sorted(
        record["position"]
        for record in dumped  # type: ignore[type-var]
    )


def test_what_was_given_an_id_and_what_is_to_come_is_told(data: Path) -> None:
    [once] = records(data, "--type", "dedup")
    assert (once["topic"], once["dedup_ids"]) == ("orders", ["order-8"])
    schedule, declared = records(data, "--type", "schedule")
    assert (schedule["schedule"], schedule["every_ms"]) == ("report", 60_000)
    assert (declared["app"], declared["schedules"], declared["since_ms"]) == ("", "report", 1)


def test_limits_are_told(data: Path) -> None:
    told = records(data, "--type", "limit")
    assert [(one["scope"], one["name"]) for one in told] == [("client", "*")] * 2
    assert (told[0]["sends_per_s"], told[1]["unset"]) == (9, True)


def test_names_stand_for_ids(data: Path) -> None:
    (dead, _) = records(data, "--type", "dead")
    assert (dead["group"], dead["origin_topic"], dead["message_id"]) == ("billing", "orders", "m-1")
    attempt = records(data, "--type", "attempt")[0]
    assert (attempt["outcome"], attempt["failure_class"]) == ("nack", "TimeoutError")
    assert attempt["client"] == "client-1"
    config = records(data, "--type", "config")
    assert [each["deleted"] for each in config if "deleted" in each] == ["mails"]


def test_a_transaction_is_explained(data: Path) -> None:
    half, _, sold = records(data, "--type", "half")
    [sender] = records(data, "--type", "half_sender")
    assert (sender["messages_at"], sender["user"]) == ([sold["position"]], "shop")
    checked, rolled_back = records(data, "--type", "txn")
    assert "due_at_ms" not in half
    assert half["check_at_ms"] < checked["check_at_ms"]  # type: ignore[operator]
    assert checked["message_at"] == rolled_back["message_at"] == half["position"]
    assert (checked["what"], checked["checks"]) == ("a producer was asked", 1)
    assert (rolled_back["what"], rolled_back["cause"]) == ("rolled back", "operator")
    assert records(data, "--type", "ref")[-1]["reason"] == "committed"


def test_what_an_ordered_group_did_is_explained(data: Path) -> None:
    leases = records(data, "--type", "lease_ordered")
    in_order = [lease for lease in leases if "held_back" in lease]
    assert [(lease["held_back"], lease["group"]) for lease in in_order] == [(["0:3"], "ordered")]
    assert ["0:0", "0:1", "0:2"] in [lease.get("leased") for lease in leases]


def test_lines_for_people(data: Path) -> None:
    lines = run("dump", str(data), "--type", "MESSAGE").stdout.splitlines()
    assert "topic=orders queue=0 offset=0 message_id=m-1 tag=created body_bytes=4" in lines[0]
    assert "message_id=m-2 due_at_ms=20" in lines[1]


def test_a_part_of_it(data: Path) -> None:
    everything = records(data)
    third = everything[2]["position"]
    assert records(data, "--from", str(third), "--limit", "2")[0]["position"] == third
    assert len(records(data, "--limit", "2")) == 2
    nothing = run("dump", str(data), "--type", "blank")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no such records\n")


def test_a_sound_directory(data: Path) -> None:
    result = run("verify", str(data))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "  verdict      sound"
    assert "last stop    in order" in result.stdout
    report = json.loads(run("verify", str(data), "--json").stdout)
    assert (report["ok"], report["clean"], report["damages"]) == (True, True, [])
    assert report["records"]["dead"] == 2


def test_a_damaged_record_is_found_and_named(data: Path) -> None:
    message = records(data, "--type", "message")[0]
    position = int(str(message["position"]))
    (segment,) = (data / "log").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(position - int(segment.stem) + 60)
        file.write(b"\xff")
    result = run("verify", str(data))
    assert result.exit_code == 1
    assert f"damage       at position {position}" in result.stdout
    assert result.stdout.splitlines()[-1] == "  verdict      DAMAGED"
    assert result.stderr.startswith("latermq: 1 damaged place in ")
    dump = run("dump", str(data))
    assert dump.exit_code == 1
    assert dump.stdout
    assert dump.stderr.startswith(f"latermq: damaged record at position {position}")


def test_what_lies_behind_damage_is_not_promised_to_go() -> None:
    report = VerifyReport(
        start=32,
        end=64,
        segments=(),
        records={},
        torn_bytes=8,
        clean=False,
        damages=(),
        checkpoints=(),
    )
    assert _last_stop(report).endswith("8 bytes of an unfinished write, which a start removes")
    damaged = replace(report, damages=(Damage(40, "its checksum does not match", 56),))
    assert _last_stop(damaged).endswith("leaves alone should it stop at the damage")


def test_checkpoints_without_a_log(data: Path) -> None:
    for segment in (data / "log").glob("*.seg"):
        segment.unlink()
    for words in (("verify",), ("dump",), ("repair", "--skip"), ("repair", "--skip", "--yes")):
        result = run(*words, str(data))
        assert (result.exit_code, result.stdout) == (1, "")
        assert "the log itself is missing. Restore it from a backup" in result.stderr


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        for word in ("dump", "verify"):
            result = run(word, str(path))
            assert (result.exit_code, result.stdout) == (2, "")
            assert len(result.stderr.splitlines()) == 1
