"""`latermq demo`: the life of a few orders, told while it happens.

A broker is started on a directory and a port of its own. What the story says is asked of the broker
before it is said: a step that finds something else ends the demo with exit code 1. Numbers come
from the run. The shop is `latermq.demo` (the SDK); its programs run as processes, because the
broker's package and the SDK never import each other.
"""

import importlib.util
import platform
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.connection.connection import Connection
from latermq_cli.demo.demo_stage import Event, Stage, StoryError
from latermq_cli.terminal.termination import orderly_termination
from latermq_cli.terminal.times import format_clock
from latermq_proto.latermq.v1 import dead_letter_pb2, pending_pb2
from latermq_text.durations import format_duration
from latermq_text.version import is_compiled

GROUP: Final = "billing"
DEADLINES: Final = "payment-deadlines"
REMINDERS: Final = "reminders"
ATTEMPTS: Final = 3
BACKOFF_MS: Final = (1_000, 3_000)  # a shortened ladder: 1 s, then 3 s
DEADLINE_S: Final = 12
ORDER_COUNT: Final = 6
SPARK_TIMEOUT_S: Final = 120.0
CLONE: Final = Path(__file__).parents[3]  # where this is not installed, but worked on


@click.command()
@click.option(
    "--spark/--no-spark", default=True, help="Let Spark read the dead letters at the end."
)
def demo(spark: bool) -> None:
    """Show one story: an order, a deadline, failures, retries, dead letters, a redrive.

    Starts a broker of its own on a free port and removes everything when it ends.
    """
    with (
        orderly_termination(),
        tempfile.TemporaryDirectory(prefix="latermq-demo-") as directory,
    ):
        stage = Stage(Path(directory))
        try:
            _Story(stage, Path(directory)).tell(spark=spark)
        except StoryError as error:
            click.secho(f"\nlatermq demo: this did not go as told: {error}", fg="red", err=True)
            sys.exit(1)
        finally:
            stage.close()


class _Story:
    """What has happened so far, as the programs told it and the broker confirmed it."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self._stage = stage
        self._directory = directory
        self._endpoint = ""
        self._order_of: dict[str, str] = {}  # message id → order
        self._deadline_ms = 0
        self._billed: list[Event] = []
        self._failed: list[Event] = []
        self._letters: dict[str, Any] = {}  # order → latermq.v1.DeadLetter
        self._reminded = ""
        self._spark: Event | None = None
        self._started: set[str] = set()

    def tell(self, *, spark: bool) -> None:
        self._start_broker()
        self._place_order_with_deadline()
        self._bill_and_fail()
        self._explain_the_dead()
        self._strike_deadline()
        self._redrive()
        if spark:
            self._read_with_spark()
        self._sum_up()

    def _start_broker(self) -> None:
        stage = self._stage
        stage.heading("A broker: one process, one directory; no JVM, no name server, no proxy")
        stage.shell("latermq serve --listen 127.0.0.1:0 --data-dir ./data")
        started_ms = clock.now_ms()
        serve = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(self._directory / "data"))
        stage.play("broker", "latermq_broker", *serve)
        marker = "latermq ready on "
        for event in stage.events("the broker", until=lambda: bool(self._endpoint)):
            if event.text.startswith(marker):
                self._endpoint = event.text.removeprefix(marker).strip()
        took_ms = clock.now_ms() - started_ms
        stage.environment["LATERMQ_ENDPOINT"] = self._endpoint
        stage.tell(f"{marker}{self._endpoint} after {took_ms} ms, Python's own start included.")
        stage.tell("The group `billing` gets three deliveries for a message, on a short ladder:")
        ladder = " ".join(f"{wait // 1000}s" for wait in BACKOFF_MS)
        stage.run(
            "group", "create", GROUP, "--max-attempts", str(ATTEMPTS), "--backoff", ladder
        )  # fmt: skip

    def _place_order_with_deadline(self) -> None:
        stage = self._stage
        stage.heading("An order is placed, with a payment deadline")
        self._place(1, first=1001, deadline_s=DEADLINE_S)
        stage.tell("The reminder is a message of its own, stored now and delivered at its time:")
        stage.run("pending", "list")
        [waiting] = self._pending(pending_pb2.DELAYED)
        if waiting.topic != DEADLINES or waiting.due_at_ms != self._deadline_ms:
            raise StoryError(f"another message is pending than the reminder: {waiting}")

    def _place(self, count: int, *, first: int, deadline_s: int) -> None:
        self._stage.play(
            "orders", "latermq.demo.orders", "--events", "--every", "0.05",
            "--count", str(count), "--first", str(first), "--deadline", str(deadline_s),
        )  # fmt: skip
        until = len(self._order_of) + count
        for event in self._stage.events("orders", until=lambda: len(self._order_of) == until):
            if event.name == "placed":
                self._order_of[event.fields["message_id"]] = event.fields["order"]
                self._deadline_ms = event.fields["deadline_at_ms"] or self._deadline_ms
            elif event.name == "placing":
                self._stage.tell(event.text)
            else:
                self._take(event)
        self._stage.finish("orders", timeout_s=10)

    def _bill_and_fail(self) -> None:
        stage = self._stage
        stage.heading("Billing starts; more orders come in, and some cannot be billed")
        self._play_billing()
        self._place(ORDER_COUNT - 1, first=1002, deadline_s=0)
        shown = False
        for event in stage.events("the retries", until=self._both_died):
            self._take(event)
            if not shown and self._failures_of(attempt=2) == 2:
                shown = True
                stage.tell("Both wait for their last attempt:")
                stage.run("pending", "list", "--group", GROUP)
        self._check_deaths()

    def _both_died(self) -> bool:
        """Tell whether both died for the broker and for billing, whose own words may come later."""
        return self._failures_of(attempt=ATTEMPTS) == 2 and len(self._dead()) == 2

    def _play_billing(self, *options: str) -> None:
        self._stage.play("billing", "latermq.demo.billing", "--events", *options)
        for event in self._stage.events("billing", until=lambda: "billing" in self._started):
            self._take(event)

    def _take(self, event: Event) -> None:
        """Show what billing says and remember it."""
        if event.name == "started":
            self._started.add(event.actor)
        if event.name == "billed":
            self._billed.append(event)
            self._stage.tell(event.text, fg="green")
        elif event.name == "failed":
            self._failed.append(event)
            self._stage.tell(event.text, fg="yellow")
        elif event.actor == "billing":
            self._stage.tell(event.text)

    def _failures_of(self, *, attempt: int) -> int:
        return sum(event.fields["attempt"] == attempt for event in self._failed)

    def _check_deaths(self) -> None:
        """Check that the broker's account of the dead is what billing went through."""
        letters = self._dead()
        failures = Counter(event.fields["order"] for event in self._failed)
        expected = {order for order, count in failures.items() if count == ATTEMPTS}
        self._letters = {self._order_of[letter.message_id]: letter for letter in letters}
        if set(self._letters) != expected:
            raise StoryError(f"dead are {sorted(self._letters)}, not {sorted(expected)}")
        for order, letter in self._letters.items():
            classes = [
                e.fields["failure_class"] for e in self._failed if e.fields["order"] == order
            ]
            if [attempt.failure_class for attempt in letter.attempts] != classes:
                raise StoryError(
                    f"{order} failed with {classes}; the broker kept {letter.attempts}"
                )
            self._check_waits(order, letter)
        lost = set(self._order_of.values()) - expected - self._orders_billed()
        if lost:
            raise StoryError(f"neither billed nor dead: {sorted(lost)}")

    def _check_waits(self, order: str, letter: Any) -> None:
        for before, after, wait_ms in zip(
            letter.attempts, letter.attempts[1:], BACKOFF_MS, strict=False
        ):
            waited_ms = after.started_at_ms - before.ended_at_ms
            if before.backoff_ms != wait_ms or waited_ms < wait_ms:
                raise StoryError(f"{order} came back after {waited_ms} ms, not {wait_ms} ms")

    def _explain_the_dead(self) -> None:
        stage = self._stage
        stage.heading(f"{len(self._letters)} orders are dead. Why? The broker kept every attempt")
        stage.run("dead", "list", GROUP)
        for letter in self._letters.values():
            stage.tell("")
            stacks = ("--stack",) if _is_our_bug(letter) else ()
            stage.run("dead", "show", GROUP, "--offset", str(letter.queue_offset), *stacks)

    def _strike_deadline(self) -> None:
        stage = self._stage
        left_ms = self._deadline_ms - clock.now_ms()
        stage.heading("The payment deadline of the first order")
        if left_ms > 0:
            stage.tell(f"It is due in {format_duration(left_ms)}; a waiting receive is woken then:")
        else:
            stage.tell("This machine is slow today: the time is up, the reminder is in its queue.")
        came_ms = stage.run(
            "receive", DEADLINES, "--group", REMINDERS, "--wait", "20s", "--ack",
            waiting_for="the deadline",
        )  # fmt: skip
        late_ms = came_ms - self._deadline_ms
        if late_ms < 0:
            raise StoryError(f"the reminder came {-late_ms} ms before its time")
        if self._pending(pending_pb2.DELAYED):
            raise StoryError("the reminder was delivered and is still pending")
        due = format_clock(self._deadline_ms)
        stage.tell(f"Due {due}, on this screen {late_ms} ms later; never before.")
        self._reminded = f"{late_ms} ms after its time" if left_ms > 0 else "after its time"

    def _redrive(self) -> None:
        stage = self._stage
        stage.heading("One of the two was our bug: release 2 can read its amount. Back it goes")
        [order] = [order for order, letter in self._letters.items() if _is_our_bug(letter)]
        letter = self._letters[order]
        stage.stop("billing")
        self._started.clear()
        self._play_billing("--fixed")
        stage.run("dead", "redrive", GROUP, "--offset", str(letter.queue_offset))
        before = len(self._billed)
        for event in stage.events(f"order {order}", until=lambda: len(self._billed) > before):
            self._take(event)
        if self._billed[-1].fields["order"] != order:
            raise StoryError(f"redriven was {order}, billed {self._billed[-1].fields['order']}")
        [left] = self._dead()
        if self._order_of[left.message_id] == order:
            raise StoryError(f"{order} was billed and still counts as dead")

    def _read_with_spark(self) -> None:
        stage = self._stage
        stage.heading("Spark reads the dead-letter topic as a table")
        if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None:
            stage.tell("Left out: it needs Java 17 and `pip install 'latermq[spark]'`.")
            return
        stage.shell(f"python -m latermq.demo.report --group {GROUP}")
        stage.play("report", "latermq.demo.report", "--events", "--group", GROUP)
        waiting = stage.events(
            "Spark", until=lambda: self._spark is not None, timeout_s=SPARK_TIMEOUT_S
        )
        for event in waiting:
            if event.name == "read":
                self._spark = event
            if event.actor == "report":
                stage.tell(event.text)
        stage.finish("report", timeout_s=20)
        assert self._spark is not None
        if self._spark.fields["rows"] != len(self._letters):
            raise StoryError(f"{self._spark.text}; the broker has {len(self._letters)}")

    def _sum_up(self) -> None:
        stage = self._stage
        attempts = len(self._billed) + len(self._failed)
        by_class = Counter(event.fields["failure_class"] for event in self._failed)
        classes = ", ".join(f"{count} x {name}" for name, count in by_class.most_common())
        letters = len(self._letters)
        stage.heading("What happened")
        stage.tell(f"{len(self._order_of)} orders were placed and {attempts} deliveries made.")
        stage.tell(f"{len(self._failed)} deliveries failed: {classes}.")
        stage.tell(
            f"{letters} orders used up their {ATTEMPTS} deliveries; no retry came before its wait "
            "was over, and each attempt is on file."
        )
        stage.tell(f"{len(self._billed)} orders are billed, one of them after a redrive.")
        stage.tell(f"The reminder was on the screen {self._reminded}, and not before.")
        if self._spark is not None:
            stage.tell(f"{self._spark.text}.")
        stage.heading("Where to look next")
        for line in _ways_on():
            stage.tell(line)
        stage.tell(f"Python {platform.python_version()}; everything that ran here is stopped.")

    def _orders_billed(self) -> set[str]:
        return {event.fields["order"] for event in self._billed}

    def _pending(self, kind: int) -> list[Any]:
        request = pending_pb2.ListPendingRequest(filter=pending_pb2.PendingFilter(kind=kind))
        with Connection(self._endpoint) as broker:
            messages, _ = broker.pages(broker.pending.ListPending, request, "messages", 100)
        return messages

    def _dead(self) -> list[Any]:
        request = dead_letter_pb2.ListDeadLettersRequest(group=GROUP)
        with Connection(self._endpoint) as broker:
            letters, _ = broker.pages(broker.dead_letters.ListDeadLetters, request, "letters", 100)
        return letters


def _is_our_bug(letter: Any) -> bool:
    """Tell whether it is our bug in reading the amount: a ValueError; a wrong card is not ours."""
    return bool(letter.failure_class.rpartition(".")[2] == "ValueError")


def _ways_on() -> list[str]:
    """List what to look at next: in a clone its targets and pages, else the command alone."""
    if not (CLONE / "Makefile").exists():
        return ["latermq serve            a broker for yourself; then `latermq --help`"]
    compiled = "make serve NATIVE=1      the same, compiled first: twice as fast"
    return [
        "make serve               a broker for yourself; then `latermq --help`",
        *([] if is_compiled() else [compiled]),
        "README.md                the ten lines that send and receive, clients, Spark",
        "docs/ARCHITECTURE.md     how a message lives inside",
    ]
