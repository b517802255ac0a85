"""`latermq topic` and `latermq group`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import Failure
from latermq_broker.services.clients.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_text.durations import format_exact
from support.cli_rig import CliRig
from support.memory_files import MemoryFiles

LADDER: Final = " ".join(map(format_exact, DeliveryConfig().retry_ladder_ms))
DEFAULT: Final = f"default, the broker's delivery.delay_levels_ms from the third: {LADDER}"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_a_topics_life(rig: CliRig) -> None:
    assert rig.ok("topic", "create", "orders", "--queues", "2") == "topic orders: mixed, 2 queues\n"
    assert rig.ok("topic", "alter", "orders", "--type", "normal") == (
        "topic orders: normal, 2 queues\n"
    )
    rig.send_message("m-1")
    rig.make_group()
    rig.receive()
    header, row = rig.ok("topic", "list").splitlines()
    assert header.split() == ["TOPIC", "TYPE", "QUEUES", "MESSAGES", "DELAYED", "CREATED"]
    assert row.split()[:5] == ["orders", "normal", "2", "1", "0"]
    shown = rig.ok("topic", "show", "orders")
    assert "accepts   normal, 2 queues" in shown
    assert "read by   billing" in shown
    assert rig.ok("topic", "delete", "orders", "--yes") == "topic orders deleted\n"
    assert rig.missing("topic", "show", "orders") == (
        "latermq: topic not found: orders (code 40402)"
    )


def test_topics_as_json(rig: CliRig) -> None:
    made = rig.json("topic", "create", "orders")
    assert (made["name"], made["type"], made["queue_count"]) == ("orders", "mixed", 1)
    assert rig.json("topic", "list") == {"topics": [made], "more": False}
    assert rig.json("topic", "show", "orders") == made
    assert rig.json("topic", "delete", "orders", "--yes") == {
        "name": "orders",
        "deleted": True,
        "live_consumers": [],
    }


def test_how_long_messages_of_a_topic_stay(rig: CliRig) -> None:
    rig.ok("topic", "create", "orders")
    shown = rig.ok("topic", "show", "orders")
    assert (
        "  kept      3d once every group has read it; unread goes when the disk is nearly full; as "
        "the broker's settings say\n"
    ) in shown
    made = rig.json("topic", "create", "audit", "--retention", "30d", "--unread-retention", "60d")
    assert (made["retention_ms"], made["kept_ms"]) == (30 * 86_400_000, 30 * 86_400_000)
    rig.send_message("m-1", topic="audit")
    shown = rig.ok("topic", "show", "audit")
    assert "30d once every group has read it; unread goes after 60d; set for this topic" in shown
    assert "            the oldest is of " in shown
    rig.ok("topic", "alter", "audit", "--retention", "forever", "--unread-retention", "disk")
    assert "kept      for ever, set for this topic" in rig.ok("topic", "show", "audit")
    altered = rig.json("topic", "alter", "audit", "--retention", "default")
    assert (altered.get("retention_ms"), altered["kept_ms"]) == (None, 3 * 86_400_000)
    assert altered["unread_retention_ms"] == 0
    for option, word in (("--unread-retention", "forever"), ("--retention", "disk")):
        assert option in rig.refused("topic", "alter", "audit", option, word)  # another is meant
    for age in ("0", "0s", "0.2ms"):  # not for ever, which is another word
        assert age in rig.refused("topic", "alter", "audit", "--retention", age)
    assert "at least as long" in rig.refused("topic", "alter", "audit", "--unread-retention", "1h")
    assert "1 topic with a retention" in rig.ok("broker", "show")


def test_a_damaged_queue_hides_no_group(rig: CliRig) -> None:
    rig.make_group("billing")
    rig.send_message("m-1")
    rig.receive("billing")
    rig.checkpoint()
    rig.checkpoint()
    assert isinstance(rig.files, MemoryFiles)
    del rig.files.disk.bytes_of(Path(f"/data/cq/1/0.{0:020d}.cq"))[:]
    assert [each["name"] for each in rig.json("group", "list")["groups"]] == ["billing"]
    assert rig.json("group", "show", "billing")["topics"][0]["in_flight_count"] == 1
    assert "billing" in rig.ok("top", "--once")


def test_how_long_dedup_ids_of_a_topic_count(rig: CliRig) -> None:
    rig.ok("topic", "create", "orders", "--dedup-window", "1h")
    shown = rig.ok("topic", "show", "orders")
    assert "  dedup     an id counts for 1h, set for this topic\n" in shown
    altered = rig.json("topic", "alter", "orders", "--dedup-window", "default")
    assert (altered.get("dedup_window_ms"), altered["dedup_kept_ms"]) == (None, 300_000)
    shown = rig.ok("topic", "show", "orders")
    assert "  dedup     an id counts for 5m, as the broker's settings say\n" in shown
    assert "from 1 to" in rig.refused("topic", "alter", "orders", "--dedup-window", "forever")


def test_topics_that_are_refused(rig: CliRig) -> None:
    assert "one queue" in rig.refused("topic", "create", "o", "--type", "lite", "--queues", "2")
    assert "other characters" in rig.refused("topic", "create", "a b")
    assert "say what to change" in rig.refused("topic", "alter", "o")
    assert "not found" in rig.missing("topic", "delete", "o", "--yes")
    assert rig.ok("topic", "list").startswith("no topics yet")


def test_what_does_not_fit_a_new_type_is_told(rig: CliRig) -> None:
    rig.ok("topic", "create", "orders")
    altered = rig.run("topic", "alter", "orders", "--type", "fifo")
    assert (altered.exit_code, altered.stderr) == (0, "")
    rig.send_message("in line")
    rig.send_message("late", wait_ms=60_000)
    rig.send_half("half")
    note = (
        "latermq: note: the topic keeps what it has (1 message in its queues, 1 delayed, 1 open "
        "transaction), delivered as it was sent; only new messages must be of type normal\n"
    )
    altered = rig.run("topic", "alter", "orders", "--type", "normal")
    assert (altered.exit_code, altered.stderr) == (0, note)
    altered = rig.run("topic", "alter", "orders", "--type", "delay", "--json")
    assert "(1 message in its queues, 1 open transaction)" in altered.stderr
    assert rig.run("topic", "alter", "orders", "--type", "mixed").stderr == ""
    assert rig.run("topic", "alter", "orders", "--queues", "8").stderr == ""


def test_a_topic_of_each_type_is_made(rig: CliRig) -> None:
    for kind in ("normal", "fifo", "delay", "transaction", "priority", "lite", "mixed"):
        assert f"topic {kind}: {kind}, " in rig.ok("topic", "create", kind, "--type", kind)


def test_dead_letter_topics_are_listed_when_asked(rig: CliRig) -> None:
    rig.die("m-1")
    assert "%DLQ%billing" not in rig.ok("topic", "list")
    assert "%DLQ%billing" in rig.ok("topic", "list", "--internal")


def test_a_listing_says_when_there_is_more(rig: CliRig) -> None:
    for name in "abc":
        rig.ok("topic", "create", name)
        rig.ok("group", "create", name)
    for what in ("topic", "group"):
        lines = rig.ok(what, "list", "--limit", "2").splitlines()
        assert [line[0] for line in lines[1:3]] == ["a", "b"]
        assert "raise --limit" in lines[3]
        assert rig.json(what, "list", "--limit", "2")["more"] is True


def test_a_groups_life(rig: CliRig) -> None:
    assert rig.ok("group", "create", "billing", "--max-attempts", "3", "--backoff", "1s 5s") == (
        "group billing: 3 attempts, backoff 1s 5s\n"
    )
    assert rig.ok("group", "alter", "billing", "--backoff", "exponential 5s 2h 2") == (
        "group billing: 3 attempts, backoff exponential 5s 2h 2\n"
    )
    assert rig.ok("group", "alter", "billing", "--backoff", "default") == (
        f"group billing: 3 attempts, backoff {DEFAULT}\n"
    )
    rig.send_message("m-1")
    rig.send_message("m-2")
    rig.fail(Failure("E", "x"))
    rig.advance(2_000)
    header, row = rig.ok("group", "list").splitlines()
    titles = "GROUP READY BEHIND HELD BACKOFF IN OUT DEAD ORDER ATTEMPTS POLICY CREATED"
    assert header.split() == titles.split()
    cells = row.split()
    assert (cells[0], cells[1]) == ("billing", "2")
    assert f" any           3  {LADDER}  " in row
    assert "0.033/s" in row, "two messages in the last minute"
    shown = rig.ok("group", "show", "billing")
    assert "attempts      3, then a dead letter" in shown
    assert f"  backoff       {DEFAULT}\n" in shown
    titles = "TOPIC READY BEHIND HELD BACKOFF IN OUT LAST CONSUMED"
    assert shown.splitlines()[-2].split() == titles.split()
    assert shown.splitlines()[-1].split()[:2] == ["orders", "2"]
    assert rig.ok("group", "delete", "billing", "--yes") == (
        "group billing deleted; its dead letters stay in %DLQ%billing\n"
    )


def test_a_group_whose_consumers_filter_differently_says_so(rig: CliRig) -> None:
    rig.ok("group", "create", "billing")
    assert "filters" not in rig.ok("group", "show", "billing")
    assert rig.json("group", "show", "billing")["unequal_filters"] == []
    for client_id, expression in (("c1", "a\x1b"), ("c2", "b"), ("c3", "b")):
        settings = definition_pb2.Settings()
        settings.subscription.group.name = "billing"
        entry = settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.expression = "orders", expression
        rig.sessions.filters.add(client_id, settings)
    shown = rig.ok("group", "show", "billing")
    assert "filters       differ on orders: b (2 clients), a" in shown
    assert "\x1b" not in shown
    (unequal,) = rig.json("group", "show", "billing")["unequal_filters"]
    assert unequal["topic"] == "orders"
    assert unequal["filters"][0] == {"expression": "b", "client_count": 2}


def test_a_group_whose_topic_is_shared_by_two_services_says_so(rig: CliRig) -> None:
    rig.ok("group", "create", "billing")
    for client_id, service in (("c1", "billing"), ("c2", "shop\x1b"), ("c3", "billing")):
        session = Session(
            client_id=client_id, kind=ClientKind.PUSH_CONSUMER, group="billing",
            topics=frozenset({"orders"}), settings=definition_pb2.Settings(), language="PYTHON",
            version="", seen_ms=rig.now_ms, service=service,
        )  # fmt: skip
        rig.sessions.put(session)
        rig.sessions.attach(client_id, rig.sessions.open_stream())
        shown = rig.ok("group", "show", "billing")
        assert ("services" in shown) == (client_id != "c1")
    assert "services      billing (2 clients), shop" in shown
    assert "share orders: each message goes to one" in shown
    assert "\x1b" not in shown
    (topic,) = rig.json("group", "show", "billing")["services"]
    assert [use["client_count"] for use in topic["services"]] == [2, 1]
    assert "service   billing" in rig.ok("client", "show", "c1")


def test_a_fifo_group_is_made_as_rocketmq_has_them(rig: CliRig) -> None:
    assert rig.ok("group", "create", "ledger", "--fifo") == (
        "group ledger: fifo, unlimited attempts, backoff fixed 3s\n"
    )
    assert rig.ok("group", "create", "ledger", "--fifo") != "", "again is no error"
    assert "fifo   unlimited  fixed 3s" in rig.ok("group", "list")
    shown = rig.ok("group", "show", "ledger")
    assert "  attempts      unlimited: a message comes again until it is done\n" in shown
    assert "  backoff       fixed 3s\n" in shown
    assert rig.ok("group", "alter", "ledger", "--max-attempts", "5", "--backoff", "default") == (
        f"group ledger: fifo, 5 attempts, backoff {DEFAULT}\n"
    )
    assert rig.ok("group", "alter", "ledger", "--max-attempts", "unlimited").startswith(
        "group ledger: fifo, unlimited attempts, "
    )
    made = rig.ok(
        "group", "create", "told", "--fifo", "--backoff", "default", "--max-attempts", "4"
    )
    assert made == f"group told: fifo, 4 attempts, backoff {DEFAULT}\n"
    made = rig.ok("group", "create", "parking", "--fifo", "--on-dead", "park")
    assert made == "group parking: fifo, parks, 3 attempts, backoff fixed 3s\n", (
        "it waits for death"
    )
    refused = rig.refused("group", "create", "g", "--max-attempts", "0")
    assert "'0' is not a number of attempts from 1 on, or unlimited" in refused


def test_groups_as_json(rig: CliRig) -> None:
    made = rig.json("group", "create", "billing", "--backoff", "fixed 10s")
    assert made["max_attempts"] == 3
    assert made["backoff"]["fixed_ms"] == 10_000
    (listed,) = rig.json("group", "list")["groups"]
    assert listed.pop("progress")["ready_count"] == 0
    assert made.pop("progress") is None
    assert listed == made
    assert rig.json("group", "create", "plain")["backoff"] is None


def test_groups_that_are_refused(rig: CliRig) -> None:
    assert "needs --fifo" in rig.refused("group", "create", "g", "--on-dead", "park")
    assert "is not a duration" in rig.refused("group", "create", "g", "--backoff", "1s x")
    assert "say what to change" in rig.refused("group", "alter", "g")
    assert "not found" in rig.missing("group", "show", "g")
    rig.ok("group", "create", "g")
    assert "another policy" in rig.refused("group", "create", "g", "--max-attempts", "9")


def test_a_reset_reads_again(rig: CliRig) -> None:
    rig.make_group()
    rig.send_message("m-1")
    rig.ack(*rig.receive())
    told = rig.ok("group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--yes")
    assert told == ("group billing goes on in orders from the earliest message (queue 0: 0)\n")
    assert len(rig.receive()) == 1
    assert rig.json("group", "reset", "billing", "--topic", "orders", "--to", "-1h", "--yes")[
        "offsets"
    ] == [0]
    assert "say earliest, now, -1h" in rig.refused(
        "group", "reset", "b", "--topic", "o", "--to", "soon"
    )


def test_groups_are_listed_by_what_needs_a_look_first(rig: CliRig) -> None:
    for name in ("a", "b", "c"):
        rig.make_group(name)
    rig.send_message("m-1")
    rig.fail(group="c")
    rig.receive("b")

    def names(*words: str) -> list[str]:
        return [group["name"] for group in rig.json("group", "list", *words)["groups"]]

    assert names() == ["a", "b", "c"]
    assert names("--by", "failing") == ["c", "a", "b"]
    assert names("--by", "ready", "--limit", "1") == ["c"]
    assert rig.json("group", "list", "--by", "dead", "--limit", "2")["more"] is True
    assert rig.json("group", "list", "--by", "dead", "--limit", "3")["more"] is False
    assert "at most 1,000" in rig.refused("group", "list", "--by", "behind", "--limit", "1001")
