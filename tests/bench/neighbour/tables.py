"""What stands in the broker before anybody is measured: letters, what waits, a topic to be read."""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.neighbour.sends import TOPIC as NEIGHBOURS
from bench.neighbour.users import BUSY, ROOT, User, connect
from latermq.admin import Admin
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from support import wire_requests

TOPIC: Final = "orders"
DEAD: Final = "billing"  # a group with dead letters
MANY: Final = "shipping"  # one with more, and with what waits
STORM: Final = "storm"
FLOODED: Final = "flooded"
KEY: Final = "order-7"
SENT_AT_ONCE: Final = 1_000
TAKEN_AT_ONCE: Final = 256
BODY: Final = b"x" * 1_000
LETTER_MS: Final = 1_000  # a lease that nobody answers
WAITING_MS: Final = 12 * 3_600_000


class Sizes(NamedTuple):
    """How many there are of each."""

    letters: int
    redriven: int
    waiting: int
    retries: int

    def times(self, factor: float) -> "Sizes":
        return Sizes(*(max(1_000, round(count * factor)) for count in self))


FULL: Final = Sizes(letters=100_000, redriven=100_000, waiting=1_000_000, retries=100_000)


def prepare(endpoint: str, sizes: Sizes) -> None:
    """Make all that the jobs are about. Takes a minute for each 200,000."""
    with connect(endpoint, ROOT) as asked:
        for topic in (TOPIC, NEIGHBOURS, STORM, FLOODED, MANY):
            asked.call(asked.topics.CreateTopic, topic_pb2.CreateTopicRequest(name=topic))
        for group, attempts in ((DEAD, 1), (MANY, 1), (STORM, 1_000), (NEIGHBOURS, 16)):
            policy = group_pb2.Group(name=group, max_attempts=attempts)
            asked.call(asked.groups.CreateGroup, group_pb2.CreateGroupRequest(group=policy))
    with connect(endpoint, BUSY) as asked:
        fill(asked, TOPIC, sizes.letters)
        take(asked, TOPIC, DEAD, sizes.letters, LETTER_MS)
        fill(asked, MANY, sizes.redriven)
        take(asked, MANY, MANY, sizes.redriven, LETTER_MS)
        fill(asked, MANY, sizes.waiting)
        take(asked, MANY, MANY, sizes.waiting, WAITING_MS)
        fill(asked, STORM, sizes.retries)
        for group, count in ((DEAD, sizes.letters), (MANY, sizes.redriven)):
            request = group_pb2.GetGroupRequest(name=group)
            while asked.call(asked.groups.GetGroup, request).group.dead_letter_count < count:
                time.sleep(0.2)


def fill(asked: Admin, topic: str, count: int) -> None:
    for some in portions(count, SENT_AT_ONCE):
        messages = [wire_requests.message(topic, BODY, keys=[KEY]) for _ in range(some)]
        asked.call(asked.messaging.SendMessage, wire_requests.send(messages))


def take(asked: Admin, topic: str, group: str, count: int, invisible_ms: int) -> None:
    """Have them leased for so long."""
    request = wire_requests.receive(
        topic, group, count_max=TAKEN_AT_ONCE, wait_ms=1_000, invisible_ms=invisible_ms
    )
    taken = 0
    while taken < count:
        elements: Iterator[Any] = asked.stream(asked.messaging.ReceiveMessage, request)
        taken += sum(element.HasField("message") for element in elements)


def portions(count: int, most: int) -> Iterator[int]:
    for begin in range(0, count, most):
        yield min(most, count - begin)


async def places() -> AsyncIterator[Path]:
    """Yield fresh directories for ever; each is gone when the next is asked for."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix="latermq-bench-"))
        try:
            yield directory / "backup"
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def signing(user: User) -> dict[str, str]:
    """Return the environment of a command that this user runs."""
    keys = {"LATERMQ_ACCESS_KEY": user.access_key, "LATERMQ_SECRET_KEY": user.secret}
    return {**os.environ, **keys}
