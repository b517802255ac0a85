"""`latermq send`, `receive`, `ack`, `nack`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latermq_cli.messages import receive
from support.cli_rig import CliRig

RECEIVE = ("receive", "orders", "--group", "billing", "--wait", "0")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_what_is_sent_is_received(rig: CliRig) -> None:
    sent = rig.ok(
        "send", "orders", '{"order": 1}', "--tag", "created", "--key", "k-1", "--key", "k-2",
        "--property", "tenant=north=pole",
    )  # fmt: skip
    message_id = sent.split()[1]
    assert sent == f"sent {message_id} to orders\n"
    result = rig.run(*RECEIVE)
    assert result.exit_code == 0
    shown = result.stdout
    assert f"message {message_id}, attempt 1" in shown
    for text in ("orders, queue 0, offset 0", "tag         created", "k-1, k-2",
                 "tenant = north=pole", 'body        {"order": 1}', "handle"):  # fmt: skip
        assert text in shown
    assert result.stderr == "1 message received\n"


def test_received_as_json_lines(rig: CliRig) -> None:
    rig.ok("send", "orders", "hello", "--count", "3")
    lines = [json.loads(line) for line in rig.ok(*RECEIVE, "--max", "10", "--json").splitlines()]
    assert [line["body"] for line in lines] == ["hello"] * 3
    assert [line["queue_offset"] for line in lines] == [0, 1, 2]
    assert len({line["message_id"] for line in lines}) == 3
    assert lines[0]["attempt"] == 1
    assert lines[0]["acknowledged"] is False


def test_received_through_sql(rig: CliRig) -> None:
    for price in ("5", "15"):
        rig.ok("send", "orders", f"costs {price}", "--property", f"price={price}")
    shown = rig.ok(*RECEIVE, "--sql", "price BETWEEN 10 AND 20")
    assert "costs 15" in shown
    assert "costs 5" not in shown
    assert "at character 8" in rig.refused(*RECEIVE, "--sql", "price >")
    assert "either --tag or --sql" in rig.refused(*RECEIVE, "--sql", "a = 1", "--tag", "x")


def test_a_refused_receive_makes_no_topic_and_says_so_of_none(rig: CliRig) -> None:
    refused = rig.refused(*RECEIVE, "--sql", "price >")
    assert "at character 8" in refused
    assert "made it" not in refused
    assert "orders" not in rig.ok("topic", "list")


def test_what_has_a_known_dedup_id_is_not_stored(rig: CliRig) -> None:
    words = ("send", "orders", "hello", "--dedup-id", "order-17")
    message_id = rig.ok(*words).split()[1]
    assert rig.ok(*words) == f"not stored: orders has {message_id} with this dedup id\n"
    (told,) = rig.json(*words)["messages"]
    assert (told["message_id"], told["duplicate"]) == (message_id, True)
    assert rig.json(*words[:-1], "order-18")["messages"][0]["duplicate"] is False
    assert "LATERMQ_DEDUP_ID = order-17" in rig.ok(*RECEIVE)
    assert "at most 128" in rig.refused(*words[:-1], "o" * 129)
    result = rig.run(*words, "--count", "2")
    assert (result.exit_code, "--count and --dedup-id" in result.stderr) == (2, True)


def test_an_empty_topic_is_no_error(rig: CliRig) -> None:
    result = rig.run(*RECEIVE)
    assert (result.exit_code, result.stdout) == (0, "")
    missing = "topic orders is not there: the first message makes it\n"
    assert result.stderr == f"{missing}0 messages received\n"
    rig.ok("topic", "create", "orders")
    assert rig.run(*RECEIVE).stderr == "0 messages received\n"


def test_acknowledged_at_once(rig: CliRig) -> None:
    rig.ok("send", "orders", "hello")
    result = rig.run(*RECEIVE, "--ack")
    assert result.stderr == "1 message received and acknowledged\n"
    assert "handle" not in result.stdout
    rig.advance(3_600_000)
    assert rig.receive() == []


def test_acknowledged_by_handle(rig: CliRig) -> None:
    rig.ok("send", "orders", "hello")
    handle = rig.json(*RECEIVE)["receipt_handle"]
    assert rig.ok("ack", "orders", handle, "--group", "billing") == "1 message acknowledged\n"
    rig.advance(3_600_000)
    assert rig.receive() == []
    assert "(code 40013)" in rig.refused("ack", "orders", "bad", "--group", "billing")


def test_given_back_until_it_dies(rig: CliRig) -> None:
    rig.make_group(attempts=2)
    rig.ok("send", "orders", "hello")
    for error in ("CardError: expired", ""):
        handle = rig.json(*RECEIVE)["receipt_handle"]
        words = ["nack", "orders", handle, "--group", "billing", "--error", error]
        assert rig.ok(*words) == "given back\n"
        rig.advance(0)
    letter = rig.engine.dead.get("billing", 0)
    assert [attempt.failure and attempt.failure[:2] for attempt in letter.attempts] == [
        ("CardError", "expired"),
        ("", "given back by hand"),
    ]


def test_of_a_long_failure_its_beginning_is_told(rig: CliRig) -> None:
    rig.make_group(attempts=1)
    rig.ok("send", "orders", "hello")
    words = [
        "nack",
        "orders",
        rig.json(*RECEIVE)["receipt_handle"],
        "--group",
        "billing",
        "--error",
    ]
    assert "is not UTF-8" in rig.refused(*words, "CardError: \udcff")
    rig.ok(*words, "C" * 1_000 + ": " + "é" * 50_000)  # more than a call's headers may have
    failure = rig.engine.dead.get("billing", 0).attempts[0].failure
    assert failure is not None
    assert failure[:2] == ("C" * 256, "é" * 1_024)


def test_delays(rig: CliRig) -> None:
    assert ", due 20" in rig.ok("send", "orders", "x", "--delay", "1h")
    assert ", due 20" in rig.ok("send", "orders", "x", "--at", "10m")
    assert "delayed by level 3" in rig.ok("send", "orders", "x", "--delay-level", "3")
    last = rig.ok("send", "orders", "x", "--delay-level", "19")
    delayed = "delayed by level 19 or, if it has fewer, the broker's last"
    assert re.search(rf"\(in (2h|1h 59m)\), {delayed}", last), "some of it may have passed"
    sent = rig.json("send", "orders", "x", "--delay", "1h")
    assert sent["messages"][0]["pending_id"].startswith("d-")
    assert sent["messages"][0]["queue_offset"] is None
    assert rig.run(*RECEIVE).stdout == ""
    assert rig.ok("send", "orders", "x", "--at", "-1h").endswith("to orders\n")
    assert "one of --delay" in rig.refused("send", "o", "x", "--delay", "1s", "--at", "now")


def test_what_was_sent_before_a_refusal_is_told(rig: CliRig) -> None:
    rig.ok("limit", "set", "client", "*", "--sends", "50")
    line = rig.refused("send", "orders", "x", "--count", "1000", code=1)
    assert line.startswith("latermq: 100 of 1,000 sent, then: client latermq-cli@")
    assert rig.engine.topics.describe("orders").message_count == 100
    rig.advance(10_000)
    result = rig.run("send", "orders", "x", "--count", "1000", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["count"], len(told["messages"])) == (1, 100, 100)
    assert told["error"] in result.stderr


def test_a_lease_too_short_ends_a_receive(rig: CliRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ok("send", "orders", "x", "--count", "40")
    batch = receive._receive_batch

    def later(*words: Any) -> Any:
        rig.advance(10)
        return batch(*words)

    monkeypatch.setattr(receive, "_receive_batch", later)
    result = rig.run(*RECEIVE, "--max", "100", "--invisible", "1ms")
    ids = [line for line in result.stdout.splitlines() if line.startswith("message ")]
    assert result.exit_code == 0
    assert 32 <= len(ids) == len({line.split(",")[0] for line in ids}) <= 40
    assert result.stderr.startswith(f"{len(ids)} messages received; ")
    assert "no dead letters" in rig.ok("dead", "list", "billing")
    assert "; stopped, for they came again: --invisible is too short" in result.stderr


def test_a_receive_refused_midway_says_how_far_it_came(rig: CliRig) -> None:
    rig.ok("send", "orders", "x", "--count", "40")
    rig.ok("limit", "set", "group", "billing", "--in-flight", "5")
    result = rig.run(*RECEIVE, "--max", "10")
    assert result.exit_code == 1
    assert result.stderr.startswith("latermq: 5 messages received, then: 5 messages of group")


def test_bodies(rig: CliRig, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_bytes(b"\xff\x00 from a file")
    rig.ok("send", "orders", "-", stdin=b"from stdin")
    rig.ok("send", "orders", f"@{file}")
    rig.ok("send", "orders", "@@home")
    lines = [json.loads(line) for line in rig.ok(*RECEIVE, "--max", "5", "--json").splitlines()]
    assert [line.get("body") for line in lines] == ["from stdin", None, "@home"]
    assert lines[1]["body_base64"] == "/wAgZnJvbSBhIGZpbGU="
    rig.advance(60_000)
    assert "14 bytes, not text: ff 00 20 66" in rig.ok(*RECEIVE, "--max", "5")
    assert "No such file" in rig.refused("send", "orders", f"@{file}.gone")
    endless = rig.refused("send", "orders", "@/dev/zero")
    assert endless == "latermq: /dev/zero: more than 134217728 bytes"


def test_what_cannot_be_sent(rig: CliRig) -> None:
    assert "body is empty" in rig.refused("send", "orders", "")
    assert "is not NAME=VALUE" in rig.refused("send", "orders", "x", "--property", "a")
    twice = ("--property", "a=1", "--property", "a=2")
    assert "--property a is given more than once" in rig.refused("send", "orders", "x", *twice)
    wrong = rig.refused("send", "orders", "x", "--key", "\udcff")
    assert "'--key': '\\xff' is not UTF-8" in wrong
    thirteen = rig.refused(*RECEIVE, "--invisible", "13h")
    assert "invisible duration 13 h is not within 1 ms to 12 h" in thirteen
    assert "reserved" in rig.refused("send", "orders", "x", "--property", "KEYS=a")
    assert "say the unit" in rig.refused("send", "orders", "x", "--delay", "10")
    assert "other characters" in rig.refused("send", "a b", "x")
    assert "--group" in rig.refused("receive", "orders")


def test_a_dead_letter_shows_where_it_died(rig: CliRig) -> None:
    rig.die("m-1")
    text = rig.ok("receive", "%DLQ%billing", "--group", "reader", "--wait", "0")
    assert "died in     topic orders" in text


def test_many_go_in_batches(rig: CliRig) -> None:
    assert rig.ok("send", "orders", "x", "--count", "250").startswith("sent 250 messages to orders")
    assert rig.engine.topics.describe("orders").message_count == 250
