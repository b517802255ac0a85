"""The command line over two shards: lists of both with a SHARD column; one that is silent."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from latermq_cli import clock
from latermq_cli.clients.top import Top
from latermq_cli.connection.connection import Connection
from latermq_cli.root import latermq
from latermq_proto.latermq.v1 import topic_pb2
from support import wire_requests
from support.cluster_process import Machines
from support.wire_client import WireClient, now_ms, require_ok


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    machines = Machines(tmp_path_factory.mktemp("machines"))
    try:
        machines.start()
        yield machines
    finally:
        machines.stop()


class Commands:
    """`latermq …` at shard 1, unless it says otherwise."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self._runner = CliRunner()

    def run(self, *words: str) -> Result:
        endpoint = self.machines.shards[1].endpoint
        environment = {"LATERMQ_ENDPOINT": endpoint, "COLUMNS": "200"}
        return self._runner.invoke(latermq, list(words), env=environment)

    def said(self, *words: str) -> str:
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.said(*words, "--json"))

    def fill(self, topic: str, body: bytes = b"body", **fields: Any) -> list[str]:
        """Send a message to each shard; their ids."""
        ids = []
        for shard in self.machines.shards:
            with WireClient(shard.endpoint) as client:
                answer = client.send(wire_requests.message(topic, body, **fields))
            require_ok(answer)
            ids.append(answer.entries[0].message_id)
        return ids


@pytest.fixture
def commands(machines: Machines) -> Commands:
    return Commands(machines)


def raising_at_the_second() -> Callable[[float], None]:
    """Make a sleep that somebody ends by Ctrl-C."""
    sleeps = iter(range(9))

    def sleep(_: float) -> None:
        if next(sleeps):
            raise KeyboardInterrupt

    return sleep


def shards_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["shard"] for row in rows]


def test_topics_and_their_queues(commands: Commands, name: str) -> None:
    commands.said("topic", "create", name, "--queues", "2")
    commands.fill(name)
    rows = [row for row in commands.json("topic", "list")["topics"] if row["name"] == name]
    assert [(row["shard"], row["message_count"]) for row in rows] == [(0, 1), (1, 1)]
    header, *lines = commands.said("topic", "list").splitlines()
    assert header.split()[:2] == ["SHARD", "TOPIC"]
    assert [line.split()[0] for line in lines if f" {name} " in line] == ["0", "1"]
    shown = commands.json("topic", "show", name)
    assert shown["message_count"] == 2
    assert shards_of(shown["queues"]) == [0, 0, 1, 1]
    only = commands.json("topic", "show", name, "--shard", "0")
    assert (only["message_count"], len(only["queues"])) == (1, 2)
    assert (
        "there is no shard 2: there are 2" in commands.run("broker", "show", "--shard", "2").output
    )


def test_what_waits_is_changed_where_it_waits(commands: Commands, name: str) -> None:
    ids = commands.fill(name, deliver_at_ms=now_ms() + 3_600_000)
    rows = commands.json("pending", "list", "--topic", name)["messages"]
    assert sorted(shards_of(rows)) == [0, 1]
    pending = {row["shard"]: row["pending_id"] for row in rows}
    assert pending[1].endswith("@1")
    bare = commands.run("pending", "cancel", pending[1].removesuffix("@1"), "--yes")
    assert (bare.exit_code, "may be in several shards" in bare.output) == (2, True)
    commands.said("pending", "cancel", pending[1], "--yes")
    assert commands.json("pending", "count", "--topic", name)["total"] == 1
    commands.said("pending", "cancel", ids[0], "--yes")
    assert commands.json("pending", "count", "--topic", name)["total"] == 0


def test_receives_from_both_and_settles_in_each(commands: Commands, name: str) -> None:
    commands.fill(name)
    lines = commands.said("receive", name, "--group", name, "--max", "2", "--json").splitlines()
    handles = [json.loads(line)["receipt_handle"] for line in lines]
    assert sorted(handle.rpartition("@")[2] for handle in handles) == ["0", "1"]
    commands.said("ack", name, handles[0], "--group", name)
    commands.said("nack", name, handles[1], "--group", name)
    (progress,) = [
        row
        for row in commands.json("group", "show", name)["topics"]
        if row["backoff_count"] or row["ready_count"]
    ]
    assert progress["shard"] == int(handles[1].rpartition("@")[2])
    resets = commands.said("group", "reset", name, "--topic", name, "--to", "earliest", "--yes")
    assert resets.count(f"group {name} goes on in {name} in shard") == 2


def test_schedules_are_kept_by_shard_0(commands: Commands, name: str) -> None:
    commands.said("schedule", "create", name, "--topic", name, "--every", "1h")
    for shard in commands.machines.shards:
        listed = commands.json("schedule", "list", "--endpoint", shard.endpoint)["schedules"]
        assert [each["name"] for each in listed] == [name]
    commands.said("schedule", "run-now", name)
    assert commands.json("topic", "show", name, "--shard", "0")["message_count"] == 1
    said = []
    for number in range(16):  # one of their homes is shard 1, but for one time in 65,536
        topic = f"{name}-{number}"
        commands.said("topic", "create", topic, "--type", "fifo")
        words = ("--topic", topic, "--every", "1h", "--message-group", "g")
        said.append(commands.run("schedule", "create", topic, *words).output)
        if "shard 1 is the home of topic" in said[-1]:
            break
    assert "schedules are kept by shard 0" in said[-1]


def test_a_client_is_known_to_both(commands: Commands, name: str) -> None:
    commands.fill(name)
    for shard in commands.machines.shards:
        with WireClient(shard.endpoint, name) as client:
            client.receive(name, name, wait_ms=0)
    shown = commands.json("client", "show", name)
    assert (shown["held_count"], shards_of(shown["held"])) == (2, [0, 1])
    kicked = commands.json("client", "kick", name, "--yes")
    assert kicked["released_count"] == 2


def test_top_has_the_groups_of_both(commands: Commands, name: str) -> None:
    commands.fill(name)
    for shard in commands.machines.shards:
        with WireClient(shard.endpoint, name) as client:
            client.receive(name, name, wait_ms=0)
    rows = [row for row in commands.json("top")["groups"] if row["name"] == name]
    assert (sorted(shards_of(rows)), [row["progress"]["in_flight_count"] for row in rows]) == (
        [0, 1], [1, 1],
    )  # fmt: skip
    text = commands.said("top", "--once")
    assert text.startswith("2 shards ")
    rows_shown = [line.removeprefix(">").split() for line in text.splitlines()]
    head = next(row for row in rows_shown if row[:1] == ["GROUP"])
    (shown,) = [row for row in rows_shown if row[:1] == [name]]
    assert shown[head.index("HELD")] == "2", "of both together"
    with Connection(commands.machines.shards[1].endpoint) as broker:
        screen = Top(broker)
        screen.inside = name
        inside = [line.split() for line in screen.lines(160, 40)]
        shards = [line[0] for line in inside if line[1:2] == [name] and line[0] != "group"]
        assert shards[:2] == ["0", "1"]


def test_dead_letters_of_both(commands: Commands, name: str) -> None:
    ids = commands.fill(name)
    for shard in commands.machines.shards:
        with WireClient(shard.endpoint) as client:
            (message,) = client.receive(name, name, wait_ms=0).messages
            handle = message.system_properties.receipt_handle
            require_ok_status(client.forward(name, name, handle))
    letters = commands.json("dead", "list", name)["letters"]
    assert sorted(shards_of(letters)) == [0, 1]
    shown = commands.json("dead", "show", name, ids[1])
    assert (shown["shard"], shown["message_id"]) == (1, ids[1])
    assert commands.json("dead", "show", name)["message_id"] == ids[1], "the newest"
    refused = commands.run("dead", "show", name, "--offset", "0")
    assert "say in which with --shard N" in refused.output
    assert (
        commands.json("dead", "show", name, "--offset", "0", "--shard", "0")["message_id"] == ids[0]
    )
    assert commands.said("dead", "redrive", name, "--all").startswith("2 dead letters redriven")


def require_ok_status(status: Any) -> None:
    assert status.code == 20000, status.message


def test_a_message_is_found_wherever_it_is(commands: Commands, name: str) -> None:
    ids = commands.fill(name, keys=["order-1"])
    found = commands.json("message", "find", name, "--key", "order-1")["messages"]
    assert sorted((row["shard"], row["message_id"]) for row in found) == [(0, ids[0]), (1, ids[1])]
    (life,) = commands.json("message", "show", ids[0])["lives"]
    assert life["shard"] == 0
    assert "it is in shard 1" in commands.said("message", "show", ids[1])


def test_a_silent_shard_is_told_behind_what_was_had(commands: Commands, name: str) -> None:
    commands.fill(name)
    silent = commands.machines.shards[0]
    silent.terminate()
    try:
        result = commands.run("topic", "list", "--json")
        assert result.exit_code == 1
        rows = [row for row in json.loads(result.stdout)["topics"] if row["name"] == name]
        assert shards_of(rows) == [1]
        assert (
            "what is above is not all: shard 0: no broker answers"
            in json.loads(result.stderr)["error"]
        )
        assert commands.run("broker", "show").stdout.count("broker shard-01") == 1
        result = commands.run("cluster", "show", "--json")
        assert (result.exit_code, shards_of(json.loads(result.stdout)["shards"])) == (1, [1])
        for words in (
            ("pending", "cancel", "nobody-knows", "--yes"),
            ("pending", "expedite", "d-1-2@0"),
            ("client", "show", "nobody"),
            ("dead", "drop", "nobody", "--id", "nothing", "--yes"),
        ):  # it may be where nobody answers
            result = commands.run(*words)
            assert (result.exit_code, words) == (1, words), result.output
            assert "shard 0: no broker answers" in result.stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "sleep", raising_at_the_second())
            result = commands.run("topic", "list", "--watch")
        assert (result.exit_code, result.stdout.count(f" {name} ")) == (0, 2), "it goes on"
        result = commands.run("top", "--once")
        assert result.exit_code == 1
        assert "no answer: shard 0: no broker answers" in result.stdout
        assert "what is above is not all: shard 0" in result.stderr
    finally:
        silent.start()
    rows = commands.json("cluster", "show")["shards"]
    assert [(row["shard"], row["role"], row["owner"]) for row in rows] == [
        (shard, "alone", each.endpoint) for shard, each in enumerate(commands.machines.shards)
    ]
    blocks = commands.said("broker", "show")
    assert ("broker shard-00" in blocks, "broker shard-01" in blocks) == (True, True)
    with WireClient(silent.endpoint) as client:
        request = topic_pb2.GetTopicRequest(name=name)
        assert client.call(client.topics.GetTopic, request).topic.message_count == 1
