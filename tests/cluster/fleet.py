"""Clients of several languages, unmodified, over the shards of a cluster, and what each was told.

A language is one process that outlives every fault: a producer and a push consumer of a topic that
spreads over all shards, some of whose messages are delayed, and of one whose message groups are in
order. Each has topics and groups of its own.
"""

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import grpc

from interop import foreign
from interop.official import SCRIPT, OfficialClient, OfficialError
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok

OURS: Final = "latermq"
LANGUAGES: Final = (os.environ.get("LANGUAGES") or f"{OURS} python go java node").split()
BY_NAME: Final = ("node",)  # take one address only, here as in routes
KEYS: Final = ("ann", "bob", "cyd")
PACE_S: Final = 0.05
DELAYED_EACH: Final = 5  # one message of so many comes
DELAY_MS: Final = 2_000  # later
SOON_S: Final = patient(60)
SETTLED_MS: Final = patient(5_000)  # what was handled so long ago is acknowledged
ANSWERS: Final = 3  # after a fault


class Call(NamedTuple):
    """A send and its end; `error` is "" if it was acknowledged."""

    text: str
    due_ms: int
    at_s: float
    error: str


class Took(NamedTuple):
    text: str
    at_ms: int


class Lane(threading.Thread):
    """One producer's calls for one topic, one after another."""

    def __init__(self, client: OfficialClient, lock: threading.Lock, name: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[Call] = []
        self.failed: list[Call] = []
        self._client = client
        self._lock = lock
        self._fields = {"name": name, "topic": topic}
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._over.wait(PACE_S):
            call = self._send(*self._next(number))
            if call.error:  # it may be there already, and is tried again
                self.failed.append(call)
            else:
                self.acknowledged.append(call)
                number += 1

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _next(self, number: int) -> tuple[str, dict[str, Any]]:
        """A body, and what else is said of the message."""
        if number % DELAYED_EACH:
            return str(number), {}
        return str(number), {"deliver_at_ms": now_ms() + DELAY_MS}

    def _send(self, text: str, more: dict[str, Any]) -> Call:
        error = ""
        with self._lock:  # a command is a line
            answer = self._client.begin("send", text=text, **self._fields, **more)
        try:
            answer.result(SOON_S)
        except (OfficialError, NoAnswerError) as failure:
            error = str(failure) or "no answer"
        return Call(text, more.get("deliver_at_ms", 0), time.monotonic(), error)


class OrderedLane(Lane):
    """Message groups in turns."""

    def _next(self, number: int) -> tuple[str, dict[str, Any]]:
        key = KEYS[number % len(KEYS)]
        return f"{key}:{number // len(KEYS)}", {"message_group": key}


class Member:
    """The process of one language, with `prefix` in front of its command."""

    def __init__(self, room: Path, language: str, endpoint: str, prefix: Sequence[str]) -> None:
        self.language = language
        self.client = OfficialClient(room / language, [*prefix, *command_of(language)])
        self.plain, self.ordered = f"plain-{language}", f"ordered-{language}"
        self.faults_ms: list[int] = []
        self._endpoint = endpoint
        lock = threading.Lock()
        self.lanes: Sequence[Lane] = (
            Lane(self.client, lock, self.plain, self.plain),
            OrderedLane(self.client, lock, self.ordered, self.ordered),
        )

    def start(self) -> None:
        self.client.__enter__()
        for topic in (self.plain, self.ordered):
            fields: dict[str, Any] = {"endpoint": self._endpoint}
            wait(partial(self._begins, "producer", name=topic, topics=[topic], **fields), topic)
            fields |= {"group": topic, "topics": {topic: "*"}, "failures": {}, "brief": True}
            wait(partial(self._begins, "push", name=f"{topic}-push", **fields), topic)
        for lane in self.lanes:
            lane.start()

    def _begins(self, do: str, **fields: Any) -> bool:
        """Have the client make one of its own; False: no shard answered it in time."""
        with suppress(OfficialError):
            self.client.call(do, **fields)
            return True
        return False

    def failures(self, since_s: float) -> list[str]:
        """Name the topic of each send that the client gave up since then, and said so."""
        topics = zip((self.plain, self.ordered), self.lanes, strict=True)
        return [topic for topic, lane in topics for call in lane.failed if call.at_s >= since_s]

    def took(self, topic: str) -> list[Took]:
        """What the consumer of this topic was handed, in this order."""
        return [
            Took(event["text"], event["at_ms"])
            for event in list(self.client.events)
            if event.get("consumer") == f"{topic}-push"
        ]

    def missing(self) -> dict[str, set[str]]:
        """What was acknowledged and has not come, by topic."""
        topics = zip((self.plain, self.ordered), self.lanes, strict=True)
        return {
            topic: {call.text for call in lane.acknowledged}
            - {took.text for took in self.took(topic)}
            for topic, lane in topics
        }

    def complaints(self) -> list[str]:
        """Name every promise that is broken, once all was waited for."""
        wrong = [
            f"{len(texts)} of {topic} are lost: {sorted(texts)[:5]}"
            for topic, texts in self.missing().items()
            if texts
        ]
        due_ms: dict[str, int] = {}  # of the first try, which may be there, too
        for call in (*self.lanes[0].failed, *self.lanes[0].acknowledged):
            due_ms.setdefault(call.text, call.due_ms)
        for topic in (self.plain, self.ordered):
            last_ms: dict[str, int] = {}
            for took in self.took(topic):
                if topic == self.plain and took.at_ms < due_ms.get(took.text, 0):
                    wrong.append(f"{took.text} of {topic} came early")
                if self._settled(last_ms.get(took.text), took.at_ms):
                    wrong.append(f"{took.text} of {topic} was acknowledged, and came again")
                last_ms[took.text] = took.at_ms
        return wrong + [f"{text} of {self.ordered} out of order" for text in self.disorder()]

    def again(self) -> int:
        """How many deliveries were not a body's first."""
        took = [Counter(one.text for one in self.took(topic)) for topic in self.missing()]
        return sum(count - 1 for counts in took for count in counts.values())

    def disorder(self) -> list[str]:
        """List what came before something of its message group that was sent before."""
        first: dict[str, list[int]] = defaultdict(list)
        for text in dict.fromkeys(took.text for took in self.took(self.ordered)):
            key, _, number = text.partition(":")
            first[key].append(int(number))
        return [
            f"{key}:{later}"
            for key, numbers in first.items()
            for sooner, later in pairwise(numbers)
            if later != sooner + 1
        ]

    def silence_s(self, since_s: float) -> float:
        """The longest time since then from one OK to the next, of a lane."""
        times = [[call.at_s for call in lane.acknowledged] for lane in self.lanes]
        return max(b - a for lane in times for a, b in pairwise(lane) if b >= since_s)

    def _settled(self, before_ms: int | None, again_ms: int) -> bool:
        """Tell whether what was handled then was acknowledged before a fault, and came after it."""
        if before_ms is None:
            return False
        fault_ms = next((each for each in self.faults_ms if each >= before_ms), again_ms)
        return before_ms + SETTLED_MS < fault_ms < again_ms


class Fleet:
    """As a context manager: no process is left running.

    Args:
        endpoint: of the cluster: a name, or addresses, which some languages cannot be given.
        prefix: of the commands of clients that are to know the name; none: it is addresses.
    """

    def __init__(self, room: Path, endpoint: str, prefix: Sequence[str] = ()) -> None:
        languages = [each for each in LANGUAGES if prefix or each not in BY_NAME]
        assert languages, f"{LANGUAGES} take part where clients are given a name"
        self.members = [Member(room, language, endpoint, prefix) for language in languages]

    def __enter__(self) -> Self:
        return self

    def start(self, owner: str) -> None:
        """Make the names by one broker, and have everybody at work."""
        for member in self.members:
            wait(partial(made, owner, member.plain, fifo=False), "a topic")
            wait(partial(made, owner, member.ordered, fifo=True), "a topic")
        for member in self.members:
            member.start()
        self.wait_more()

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.client.kill()

    def fault(self) -> float:
        """Note that one begins; return when."""
        for member in self.members:
            member.faults_ms.append(now_ms())
        return time.monotonic()

    def failures(self, since_s: float) -> list[str]:
        return [failure for member in self.members for failure in member.failures(since_s)]

    def promised(self) -> int:
        return sum(len(lane.acknowledged) for member in self.members for lane in member.lanes)

    def again(self) -> int:
        return sum(member.again() for member in self.members)

    def wait_more(self) -> None:
        """Until every client had answers again, in every lane, and took what it was to take."""
        for member in self.members:
            for lane in member.lanes:
                wait_longer(lane.acknowledged, ANSWERS, f"{member.language} to send")

    def drain(self) -> list[str]:
        """Send no more, wait for all that was acknowledged; list what is wrong."""
        for member in self.members:
            for lane in member.lanes:
                lane.stop()
        for member in self.members:
            until_s = time.monotonic() + SOON_S
            while any(member.missing().values()) and time.monotonic() < until_s:
                time.sleep(0.2)
        return [complaint for member in self.members for complaint in member.complaints()]


def made(owner: str, name: str, *, fifo: bool) -> bool:
    """Make a topic and its group; False: the owner had no proof that it is one, for a moment."""
    group = group_pb2.Group(name=name, fifo=fifo, max_attempts=1_000)
    group.backoff.ladder.delays_ms.append(100)
    request = group_pb2.CreateGroupRequest(group=group)
    with suppress(grpc.RpcError, AssertionError), WireClient(owner) as wire:
        wire.create_topic(name, type=topic_pb2.FIFO if fifo else topic_pb2.MIXED)
        require_ok(wire.call(wire.groups.CreateGroup, request))
        return True
    return False


def command_of(language: str) -> list[str]:
    if language == OURS:
        return [sys.executable, str(Path(__file__).with_name("our_process.py"))]
    if language == "python":
        return [sys.executable, str(SCRIPT)]
    return foreign.command(language)


def wait_longer(answers: Sequence[object], count: int, what: str) -> None:
    """Until so many more are there."""
    wanted = len(answers) + count
    wait(lambda: len(answers) >= wanted, what)


def wait(holds: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < until_s, f"waited in vain for {what}"
        time.sleep(0.05)
