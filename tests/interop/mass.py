"""`make interop-mass`: 400 official consumers in one group, quiet, in disorder, and in FIFO order.

Quiet: every message is delivered once. In disorder, with attempts that fail, consumers' processes
that are killed and a broker that is killed and started again: none is lost, none is dead. FIFO: the
messages of a message group are first delivered in the order in which they were sent.
"""

import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from interop import compatibility
from interop.crowd import Crowd, Share, Took
from latermq_proto.apache.rocketmq.v2 import admin_pb2, admin_pb2_grpc, definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2, group_pb2, topic_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

ROOT: Final = Path(__file__).parents[2]
CROWD: Final = (  # twice each: 200 push and 200 simple consumers
    *(Share("python", 20, 15), Share("node", 30, 25), Share("go", 30, 25), Share("java", 20, 15)),
    *(Share("rust", 0, 20), Share("python", 20, 15), Share("node", 30, 25), Share("go", 30, 25)),
    *(Share("java", 20, 15), Share("rust", 0, 20)),
)
MESSAGES: Final = 100_000
QUEUES: Final = 4
BATCH: Final = 200
TURN_S: Final = 0.5  # between two looks at what came
NACK_EACH: Final = 20  # one body in so many fails at its first attempt
MESSAGE_GROUPS: Final = 500
PEACE_S: Final = 3.0  # between two disturbances


class Stage(NamedTuple):
    """What is done; `disturbances` are kills, of a consumer process and of the broker in turn."""

    name: str
    messages: int
    fifo: bool = False
    disturbances: int = 0
    timeout_s: float = 600.0
    failing: bool = False  # whether some fail at their first attempt
    lease_s: int = 20  # of simple consumers


class Outcome(NamedTuple):
    """What a stage found; the counts that must be 0 are in `wrong`."""

    stage: Stage
    consumers: tuple[int, int]
    seconds: float
    again: int  # deliveries beyond the first
    refused: int  # first attempts that a consumer had, and failed
    wrong: dict[str, int]
    by_language: dict[str, int]


def bodies(stage: Stage) -> Iterator[tuple[str, str]]:
    """(body, message group) of each message, in the order of sending."""
    for number in range(stage.messages):
        if stage.fifo:
            message_group = f"g{number % MESSAGE_GROUPS}"
            yield f"{message_group}:{number // MESSAGE_GROUPS}", message_group
        else:
            failing = stage.failing and number % NACK_EACH == 0
            yield f"{'nack' if failing else 'm'}{number}", ""


def prepare(wire: WireClient, name: str, *, fifo: bool) -> None:
    kind = topic_pb2.FIFO if fifo else topic_pb2.NORMAL
    wire.create_topic(name, type=kind, queue_count=QUEUES)
    group = group_pb2.Group(name=name, fifo=fifo, max_attempts=17)
    group.backoff.ladder.delays_ms.append(1_000)
    require_ok(wire.call(wire.groups.CreateGroup, group_pb2.CreateGroupRequest(group=group)))


def batches(topic: str, stage: Stage) -> Iterator[list[definition_pb2.Message]]:
    """All messages of a stage, as many together as are sent at once."""
    batch: list[definition_pb2.Message] = []
    for body, message_group in bodies(stage):
        message = wire_requests.message(topic, body.encode())
        if message_group:
            message.system_properties.message_type = definition_pb2.MessageType.FIFO
            message.system_properties.message_group = message_group
        batch.append(message)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class Disturber:
    """Kills a consumer process, the broker, a consumer process, … one at a time, `left` times."""

    def __init__(self, crowd: Crowd, broker: BrokerProcess, count: int) -> None:
        self._crowd, self._broker, self.left = crowd, broker, count
        self._random = random.Random(1)
        self._last_s = time.monotonic()

    def turn(self) -> None:
        if not self.left or time.monotonic() - self._last_s < PEACE_S:
            return
        if self.left % 2:
            self._broker.kill()
            self._broker.start()
        else:
            self._crowd.replace(self._random.randrange(len(self._crowd.shares)))
        self.left -= 1
        self._last_s = time.monotonic()


def left_in_group(broker: BrokerProcess, name: str) -> int:
    """Messages that are ready, leased or wait for a retry."""
    with grpc.insecure_channel(broker.endpoint) as channel:
        request = admin_pb2.DescribeGroupAccumulationRequest(group=wire_requests.resource(name))
        answer = admin_pb2_grpc.AdminStub(channel).DescribeGroupAccumulation(request)
    assert answer.status.code == definition_pb2.OK, answer.status
    return int(answer.accumulation.accumulation)


def dead_in_group(wire: WireClient, name: str) -> int:
    request = dead_letter_pb2.ListDeadLettersRequest(group=name)
    return len(wire.call(wire.dead_letters.ListDeadLetters, request).letters)


def out_of_order(took: Sequence[Took]) -> int:
    """Neighbours of a message group whose first deliveries were the wrong way round."""
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for one in took:
        group, _, number = one.text.partition(":")
        known = first[group].get(int(number))
        first[group][int(number)] = one.at_ms if known is None else min(known, one.at_ms)
    return sum(
        sooner > later
        for times in first.values()
        for sooner, later in pairwise(times[number] for number in sorted(times))
    )


def play(stage: Stage, room: Path, broker: BrokerProcess, shares: Sequence[Share]) -> Outcome:
    """Start the consumers, send while they consume, wait until all is done, and count."""
    name = stage.name.replace(" ", "-")
    wanted = {body for body, _ in bodies(stage)}
    with WireClient(broker.endpoint) as wire:
        prepare(wire, name, fifo=stage.fifo)
        with Crowd(room / name, broker.endpoint, name, name, shares, stage.lease_s) as crowd:
            began = time.monotonic()
            disturber = Disturber(crowd, broker, stage.disturbances)
            turns = stage.disturbances * PEACE_S / TURN_S or 10
            unsent, a_turn = batches(name, stage), 1 + int(stage.messages / BATCH / turns)
            while time.monotonic() < began + patient(stage.timeout_s):
                for batch in islice(unsent, a_turn):
                    require_ok(wire.send(*batch))
                disturber.turn()
                came = {one.text for one in crowd.look()}
                if not disturber.left and wanted <= came and not left_in_group(broker, name):
                    break
                time.sleep(TURN_S)
            seconds = time.monotonic() - began
            took, by_language = crowd.look(), crowd.by_language()
        left, dead = left_in_group(broker, name), dead_in_group(wire, name)
    counts = Counter(one.text for one in took)
    again = sum(counts.values()) - len(counts)
    wrong = {"lost": len(wanted - set(counts)), "left": left, "dead": dead}
    wrong["never sent"] = len(set(counts) - wanted)
    refused = {one.text for one in took if one.attempt == 1 and one.text.startswith("nack")}
    wrong["refused once and not again"] = sum(counts[text] < 2 for text in refused)
    if not (stage.disturbances or stage.failing):
        wrong["more than once"] = again
    if stage.fifo:
        wrong["out of order"] = out_of_order(took)
    consumers = sum(share.push for share in shares), sum(share.simple for share in shares)
    return Outcome(stage, consumers, seconds, again, len(refused), wrong, by_language)


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| stage | push + simple consumers | messages | kills | s | delivered again | must be 0 |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        push, simple = one.consumers
        wrong = ", ".join(f"{what} {count}" for what, count in one.wrong.items())
        stage = one.stage
        lines.append(
            f"| {stage.name} | {push} + {simple} | {stage.messages:,} | {stage.disturbances} "
            f"| {one.seconds:.0f} | {one.again:,} | {wrong} |"
        )
    shares = Counter[str]()
    for one in outcomes:
        shares.update(one.by_language)
    told = ", ".join(f"{language} {count:,}" for language, count in shares.items())
    return "\n".join([*lines, "", f"{datetime.now(UTC):%Y-%m-%d}. Deliveries by client: {told}."])


STAGES: Final = (
    Stage("quiet", MESSAGES),
    Stage("in disorder", MESSAGES, disturbances=12, failing=True),
    Stage("FIFO quiet", MESSAGES // 5, fifo=True),
    Stage("FIFO in disorder", MESSAGES // 5, fifo=True, disturbances=8),
)


def main() -> int:
    outcomes = []
    with tempfile.TemporaryDirectory() as room:
        for stage in STAGES:
            with BrokerProcess(Path(room) / stage.name / "data") as broker:
                outcomes.append(play(stage, Path(room), broker.start(), CROWD))
            print(table(outcomes[-1:]), flush=True)
    if not any(any(one.wrong.values()) for one in outcomes):
        compatibility.write(ROOT / "docs" / "compatibility.md", compatibility.MASS, table(outcomes))
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
