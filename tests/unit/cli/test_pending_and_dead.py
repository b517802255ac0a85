"""`latermq pending` and `latermq dead`."""

import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from latermq._connection.status import error_of
from latermq._values.endpoints import Endpoints
from latermq_broker.engine.state.model import Failure
from latermq_cli.connection.connection import Connection
from latermq_cli.terminal.failures import CommandError
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2
from support.cli_rig import CliRig

TIMEOUT = Failure("TimeoutError", "no answer in 30 s", "00ff", "Traceback: no answer")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_a_delay_level_is_told(rig: CliRig) -> None:
    rig.ok("send", "orders", "body", "--delay-level", "5")
    [told] = rig.json("pending", "list")["messages"]
    assert told["delay_level"] == 5
    titles, row = (re.split(r"\s{2,}", line) for line in rig.ok("pending", "list").splitlines())
    assert row[titles.index("LEVEL")] == "5"
    assert len(rig.json("pending", "list", "--delay-level", "5")["messages"]) == 1
    assert rig.json("pending", "list", "--delay-level", "4")["messages"] == []


def test_what_waits(rig: CliRig) -> None:
    assert rig.ok("pending", "list") == rig.ok("pending", "count") == "nothing is pending\n"
    rig.make_group(wait_ms=60_000)
    rig.send_message("wait", wait_ms=3_600_000, tag="created")
    rig.send_message("retry")
    rig.fail(TIMEOUT)
    header, retry, wait = rig.ok("pending", "list").splitlines()
    titles = "DUE DUE IN KIND TOPIC GROUP CLIENT ATTEMPTS LAST FAILURE TAG LEVEL MESSAGE ID ID"
    assert header.split() == titles.split()
    assert "backoff  orders  billing  client-1       1/3" in retry
    assert "TimeoutError: no answer in 30" in retry
    assert "delayed  orders  -        -                -  -" in wait
    assert re.split(r"\s{2,}", wait)[-4:-1] == ["created", "-", "wait"]
    assert rig.ok("pending", "count").splitlines()[-1] == "2 in all"
    (only,) = rig.json("pending", "list", "--kind", "delayed")["messages"]
    assert (only["message_id"], only["kind"], only["topic"]) == ("wait", "delayed", "orders")
    assert rig.json("pending", "count", "--group", "billing")["total"] == 1
    assert rig.json("pending", "list", "--due-before", "10m")["messages"][0]["kind"] == "backoff"
    assert "not found" in rig.missing("pending", "list", "--topic", "nothing")


def test_a_retry_whose_time_has_come_is_ready(rig: CliRig) -> None:
    rig.now_ms -= 90_000  # what is due in the rig is due on the command line's clock too
    rig.make_group(wait_ms=1_000)
    rig.send_message("retry")
    rig.fail()
    rig.advance(1_000)
    _, row = rig.ok("pending", "list").splitlines()
    due_in, *cells = re.split(r"\s{2,}", row)[1:6]
    assert due_in.endswith("s ago")
    assert cells == ["ready", "orders", "billing", "client-1"]
    _, row, _ = rig.ok("pending", "count").splitlines()
    *cells, due_in = re.split(r"\s{2,}", row)
    assert cells == ["ready", "orders", "billing", "1", "-"]
    assert due_in.endswith("s ago")
    assert "0 in backoff, 1 ready again," in rig.ok("broker", "show")
    (count,) = rig.json("pending", "count", "--due-before", "1m")["counts"]
    assert (count["kind"], count["count"], count["ready_count"]) == ("backoff", 1, 1)
    (delivered,) = rig.receive("billing", count=1)
    rig.engine.change_invisible("billing", delivered.handle, 0, rig.now_ms, suspend=True)
    rig.advance(0)
    (delivered,) = rig.receive("billing", count=1)
    assert delivered.attempt == 2
    rig.send_message("given back", topic="other")
    (delivered,) = rig.receive("billing", topic="other", count=1)
    rig.engine.change_invisible("billing", delivered.handle, 0, rig.now_ms, suspend=True)
    rig.advance(0)
    row = rig.ok("pending", "list", "--topic", "other").splitlines()[1]
    due_in, *cells = re.split(r"\s{2,}", row)[1:6]
    assert due_in.endswith(" ago")
    assert cells == ["ready", "other", "billing", "client-1"]


def test_a_letter_that_a_producer_sent(rig: CliRig) -> None:
    rig.make_group()
    rig.send_message("by hand", topic="%DLQ%billing")
    row = rig.ok("dead", "list", "billing").splitlines()[1]
    cells = re.split(r"\s{2,}", row.strip())
    assert cells[2:] == ["0", "sent", "-", "(none: a producer sent it here)", "by hand"]
    assert len(rig.json("dead", "list", "billing", "--reason", "sent")["letters"]) == 1
    assert rig.refused("dead", "redrive", "billing", "--offset", "0") == (
        "latermq: 1 letter failed; the last: offset 0: it was sent to %DLQ%billing by a producer "
        "and was never the group's; redrive it to a topic"
    )
    rig.ok("topic", "create", "orders")
    again = rig.ok("dead", "redrive", "billing", "--offset", "0", "--to-topic", "orders")
    assert again == "1 dead letter redriven to orders\n"
    assert len(rig.receive("billing")) == 1


def test_changing_what_waits(rig: CliRig) -> None:
    rig.send_message("m-1", wait_ms=3_600_000)
    assert rig.ok("pending", "postpone", "m-1", "--delay", "2h").startswith("m-1 due 20")
    at = rig.ok("pending", "postpone", "m-1", "--at", "2060-05-01T12:00:00.500Z")
    assert at == "m-1 due 2060-05-01 12:00:00.500 UTC\n"
    assert rig.ok("pending", "list").splitlines()[1].startswith("2060-05-01 12:00:00.500 UTC  ")
    past = rig.refused("pending", "postpone", "m-1", "--at", "2020-01-01T00:00:00Z")
    assert past.startswith("latermq: 2020-01-01 00:00:00 UTC is past (")
    assert "either --delay or --at" in rig.refused("pending", "postpone", "m-1")
    assert rig.ok("pending", "expedite", "m-1") == "m-1 due now\n"
    rig.advance(0)
    assert len(rig.receive()) == 1
    rig.send_message("m-2", wait_ms=3_600_000)
    assert rig.ok("pending", "cancel", "m-2", "--yes") == "m-2 cancelled\n"
    assert "nothing waits under 'm-2'" in rig.missing("pending", "cancel", "m-2", "--yes")


def test_a_signature_is_16_hex_digits(rig: CliRig) -> None:
    for words in (("dead", "list"), ("dead", "redrive"), ("dead", "drop")):
        assert "'zz' is not 16 hex digits" in rig.refused(*words, "w", "--signature", "zz")


def test_some_that_cannot_be_changed(rig: CliRig) -> None:
    rig.send_message("m-1", wait_ms=3_600_000)
    result = rig.run("pending", "cancel", "m-1", "gone", "--yes")
    assert result.exit_code == 3
    assert result.stdout == "m-1 cancelled\n"
    assert result.stderr.startswith("latermq: nothing waits under 'gone'")


def test_listing_the_dead(rig: CliRig) -> None:
    rig.make_group()
    assert rig.ok("dead", "list", "billing") == "no dead letters in billing\n"
    rig.die("m-1", TIMEOUT)
    rig.die("m-2", Failure("CardError", "expired"))
    rig.die("m-3", TIMEOUT)
    lines = rig.ok("dead", "list", "billing").splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["m-3", "m-2", "m-1"]
    assert lines[5] == "3 dead letters, 2 kinds of failure:"
    assert lines[7].split()[0] == "2"
    assert "TimeoutError: no answer in 30 s" in lines[7]
    oldest = rig.json("dead", "list", "billing", "--oldest-first", "--limit", "1")
    assert (oldest["letters"][0]["message_id"], oldest["more"]) == ("m-1", True)
    assert (
        rig.json("dead", "list", "billing", "--class", "CardError")["letters"][0]["message_id"]
        == "m-2"
    )
    assert len(rig.json("dead", "list", "billing", "--state", "any")["letters"]) == 3
    assert rig.ok("dead", "list", "billing", "--topic", "x") == (
        "no dead letters in billing like that\n"
    )
    assert rig.ok("dead", "list", "billing", "--topic", "x", "--by", "signature") == (
        "no dead letters in billing like that\n"
    )


def test_the_dead_by_signature(rig: CliRig) -> None:
    for name in ("m-1", "m-2"):
        rig.die(name, TIMEOUT)
    rig.die("m-3")
    lines = rig.ok("dead", "list", "billing", "--by", "signature").splitlines()
    assert lines[1].split()[0] == "2"
    assert "no failure told" in lines[2]
    assert lines[3] == "3 dead letters of billing"
    first, second = rig.json("dead", "list", "billing", "--by", "signature")["signatures"]
    assert (first["count"], first["failure_class"], first["origin_topics"]) == (
        2, "TimeoutError", ["orders"]
    )  # fmt: skip
    assert (second["count"], second["signature"]) == (1, "")


def test_showing_one(rig: CliRig) -> None:
    rig.die("m-1", TIMEOUT)
    rig.die("m-2", TIMEOUT)
    assert "message     m-1" in rig.ok("dead", "show", "billing", "m-1")
    newest = rig.ok("dead", "show", "billing")
    assert "message     m-2" in newest
    assert "1 other dead letter of this group has it" in newest
    assert "Traceback: no answer" in rig.ok("dead", "show", "billing", "--offset", "0", "--stack")
    letter = rig.json("dead", "show", "billing", "m-1")
    assert letter["attempts"][0]["stack"] == "Traceback: no answer"
    assert letter["state"] == "dead"
    assert "(code 40401)" in rig.missing("dead", "show", "billing", "gone")
    assert "either" in rig.refused("dead", "show", "billing", "m-1", "--offset", "0")
    assert "not found" in rig.missing("dead", "show", "nobody")


def test_a_redriven_one_is_ready_since_its_redrive(rig: CliRig) -> None:
    rig.now_ms -= 1_200_000
    rig.die("m-1", TIMEOUT)
    rig.advance(1_000)
    rig.ok("dead", "redrive", "billing", "--all")
    redriven_ms = rig.now_ms
    rig.advance(60_000)
    (message,) = rig.json("pending", "list")["messages"]
    assert message["due_at_ms"] == redriven_ms
    (count,) = rig.json("pending", "count")["counts"]
    assert count["next_due_at_ms"] == redriven_ms
    for words in ("list", "count"):
        row = rig.ok("pending", words).splitlines()[1]
        assert "20m" in row or "19m" in row, row
        assert "now" not in row
    state = rig.engine._state
    state.dead.clear()  # its letter went by its age
    row = rig.ok("pending", "list").splitlines()[1]
    assert re.split(r"\s{2,}", row)[:3] == ["-", "-", "ready"]


def test_redriving(rig: CliRig) -> None:
    rig.die("m-1", TIMEOUT)
    rig.die("m-2", TIMEOUT)
    assert "say which" in rig.refused("dead", "redrive", "billing")
    assert rig.ok("dead", "redrive", "billing", "--all", "--dry-run") == (
        "2 dead letters would be redriven to billing\n"
    )
    assert rig.ok("dead", "redrive", "billing", "--id", "m-1") == (
        "1 dead letter redriven to billing\n"
    )
    assert "no dead letter is called that" in rig.missing(
        "dead", "redrive", "billing", "--id", "m-1"
    )
    assert "not found" in rig.missing("dead", "redrive", "billing", "--all", "--to-topic", "no")
    rig.engine.ensure_topic("again", rig.now_ms)
    told = rig.json("dead", "redrive", "billing", "--all", "--to-topic", "again")
    assert (told["changed_count"], told["failed_count"], told["done"]) == (1, 0, True)
    assert rig.ok("dead", "redrive", "billing", "--all") == "0 dead letters redriven to billing\n"


def test_a_redrive_that_fails_in_part(rig: CliRig) -> None:
    rig.die("m-1", topic="gone")
    rig.engine.topics.delete("gone", rig.now_ms)
    line = rig.refused("dead", "redrive", "billing", "--all", code=1)
    assert line == "latermq: 1 letter failed; the last: offset 0: topic not found: gone"


def test_dropping_asks_first(rig: CliRig) -> None:
    rig.die("m-1")
    assert "pass --yes" in rig.refused("dead", "drop", "billing", "--all")
    assert rig.ok("dead", "drop", "billing", "--all", "--dry-run") == (
        "1 dead letter would be dropped\n"
    )
    assert rig.ok("dead", "drop", "billing", "--all", "--yes") == "1 dead letter dropped\n"
    assert rig.ok("dead", "list", "billing") == "no dead letters in billing\n"
    assert "dropped, for good" in rig.ok("dead", "show", "billing", "m-1")


def test_dropping_after_a_question(rig: CliRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.die("m-1")
    monkeypatch.setattr("latermq_cli.connection.options.is_interactive", lambda: True)
    refused = rig.run("dead", "drop", "billing", "--all", stdin="n\n")
    assert refused.exit_code == 1
    assert "nothing was done" in refused.stderr
    dropped = rig.run("dead", "drop", "billing", "--all", stdin="y\n")
    assert dropped.stdout == "1 dead letter dropped\n"
    assert "Drop 1 dead letter of billing?" in dropped.stderr


def test_transactions_that_have_not_ended(rig: CliRig) -> None:
    assert "orders: transaction" in rig.ok("topic", "create", "orders", "--type", "transaction")
    name = rig.send_half("m-1").transaction_id
    rig.send_half("m-2")
    line = rig.ok("pending", "list", "--kind", "half").splitlines()[1]
    assert "half  orders  -      -       0/15 checks" in line
    assert line.endswith(name)
    (count,) = rig.json("pending", "count")["counts"]
    assert (count["kind"], count["topic"], count["count"]) == ("half", "orders", 2)
    assert rig.ok("pending", "commit", name, "--yes") == "m-1 committed\n"
    assert rig.ok("pending", "cancel", "m-2", "--yes") == "m-2 cancelled\n"
    assert "nothing waits under" in rig.missing("pending", "commit", name, "--yes")
    assert len(rig.receive()) == 1


def test_what_blocks_message_groups(rig: CliRig) -> None:
    rig.ok("group", "create", "ledger", "--fifo", "--on-dead", "park")
    assert rig.ok("pending", "blocked", "ledger") == "no message group is blocked\n"
    for body in ("one", "two", "three"):
        rig.ok("send", "orders", body, "--message-group", "customer-7")
    (first,) = rig.receive("ledger")
    header, row = rig.ok("pending", "blocked", "ledger").splitlines()
    assert header.split() == ["MESSAGE", "GROUP", "TOPIC", "STATE", "UNTIL", "BEHIND", "BY"]
    assert row.startswith("customer-7     orders  in-flight  20")
    assert re.search(r" 2  r-\w+, attempt 1$", row.rstrip())
    rig.engine.forward("ledger", first.handle, rig.now_ms, TIMEOUT)
    (row,) = rig.json("pending", "blocked", "ledger", "--state", "parked")["message_groups"]
    assert (row["name"], row["state"], row["held_count"]) == (
        "customer-7", "parked", 2
    )  # fmt: skip
    lines = rig.ok("pending", "blocked", "ledger").splitlines()
    assert lines[1].rstrip().endswith("dead letter 0")
    assert "latermq dead redrive ledger" in lines[2]
    shown = rig.ok("group", "show", "ledger")
    assert "order         fifo, parks" in shown
    assert "1 message group blocked, 1 of them by dead letters, 2 messages behind" in shown
    assert "its message group stands still" in rig.ok("dead", "show", "ledger", "--offset", "0")
    rig.ok("dead", "drop", "ledger", "--offset", "0", "--yes")
    assert [one.sys for one in rig.receive("ledger")] != []
    assert "not found" in rig.missing("pending", "blocked", "nobody")
    assert "not found" in rig.missing("pending", "blocked", "ledger", "--topic", "nothing")


def test_what_dies_in_order_can_be_changed(rig: CliRig) -> None:
    rig.ok("group", "create", "ledger", "--fifo")
    parking = rig.ok("group", "alter", "ledger", "--on-dead", "park", "--max-attempts", "3")
    assert "fifo, parks, 3 attempts" in parking
    assert rig.json("group", "alter", "ledger", "--on-dead", "skip")["on_dead"] == "skip"
    rig.ok("group", "create", "any")
    assert "only a fifo group" in rig.refused("group", "alter", "any", "--on-dead", "park")


def test_a_class_that_is_not_there_names_those_there_are(rig: CliRig) -> None:
    rig.die("m-1", TIMEOUT)
    rig.die("m-2", TIMEOUT)
    rig.die("m-3", Failure("CardError", "no"))
    there = {TIMEOUT.class_name: 2, "CardError": 1}
    named = f"; classes there: {TIMEOUT.class_name} (2), CardError (1)\n"
    of = ("billing", "--class", "Tiemout")
    for words in (
        ("dead", "list", *of),
        ("dead", "list", *of, "--by", "signature"),
        ("dead", "redrive", *of),
        ("dead", "drop", *of, "--yes"),
    ):
        assert rig.ok(*words).endswith(named), words
        assert rig.json(*words)["classes_there"] == there, words
    assert "classes_there" not in rig.json("dead", "list", "billing", "--class", "CardError")
    assert "classes_there" not in rig.json("dead", "list", "billing", "--topic", "nothing")


def test_a_class_that_is_not_there(rig: CliRig) -> None:
    rig.die("m-1")
    there = rig.json("dead", "list", "billing")["letters"][0]["failure_class"]
    named = f"classes there: {there} (1)" if there else "no letter has a class"
    assert named in rig.ok("dead", "list", "billing", "--class", "Nothing")
    assert named in rig.ok("dead", "redrive", "billing", "--class", "Nothing")
    assert named in rig.ok("dead", "drop", "billing", "--class", "Nothing", "--yes")


def test_what_was_redriven_before_the_broker_went_is_told(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off(*_: object) -> AsyncGenerator[bytes, None]:
        progress = dead_letter_pb2.DeadLetterProgress(changed_count=7)
        progress.status.code = definition_pb2.OK
        yield progress.SerializeToString()
        raise error_of(GrpcCode.DEADLINE_EXCEEDED, "", Endpoints.parse("rig:1"))

    monkeypatch.setattr(rig.transport, "server_stream", cut_off)
    said = rig.refused("dead", "redrive", "billing", "--all", code=1)
    assert said.startswith("latermq: 7 redriven at least, then: the broker at ")


Progress = dead_letter_pb2.DeadLetterProgress


class TwoShards:
    """A cluster whose jobs end as `jobs` says, one after the other: after a progress, or by it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *jobs: tuple[Progress, BaseException | None]
    ) -> None:
        self.asked: list[int] = []  # how many at most, of each job
        self._jobs = iter(jobs)
        shards = {0: "rig:1", 1: "rig:2"}
        monkeypatch.setattr(Connection, "described", lambda _: (0, shards))
        monkeypatch.setattr(Connection, "stream", lambda *words: self._job(words[-1]))

    def _job(self, request: Any) -> Iterator[Progress]:
        self.asked.append(request.max_count)
        progress, end = next(self._jobs)
        progress.status.code = definition_pb2.OK
        yield progress
        if end is not None:
            raise end


@pytest.mark.parametrize(
    ("words", "verb"),
    [(("redrive",), "redriven"), (("drop", "--yes"), "found"), (("drop", "--dry-run"), "found")],
)
def test_an_interruption_ends_the_job_in_all_shards(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], verb: str
) -> None:
    """The next shard was asked, and what a dry run had counted by then was dropped."""
    done = Progress(changed_count=4, done=True), None
    shards = TwoShards(
        monkeypatch, done, (Progress(changed_count=3), KeyboardInterrupt()), done, done
    )
    said = rig.refused("dead", words[0], "billing", "--all", *words[1:], code=1)
    assert said == f"latermq: interrupted; 7 {verb} until then"
    assert len(shards.asked) == 2


def test_what_a_shard_did_before_it_broke_off_counts(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = TwoShards(
        monkeypatch,
        (Progress(changed_count=7), CommandError("it went")),
        (Progress(changed_count=3, done=True), None),
    )
    result = rig.run("dead", "redrive", "billing", "--all", "--max", "10")
    assert shards.asked == [10, 3]
    assert result.stdout == "3 dead letters redriven to billing\n"
    assert "shard 0: 7 redriven at least, then: it went" in result.stderr
