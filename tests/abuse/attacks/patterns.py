"""Patterns and filters that take for ever on a short text: number 6."""

import asyncio
from contextlib import suppress
from typing import Final

from abuse.peer import MESSAGING, Peer, Target
from abuse.siege import WORKER, Attack, Case, ask
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import queue_pb2
from support import wire_requests

DESCRIBE: Final = "/latermq.v1.Queues/DescribeQueues"
RECEIVE: Final = f"{MESSAGING}/ReceiveMessage"
LONG: Final = "a" * 60
HOLD_S: Final = 3.0


async def one_long_topic(target: Target) -> str:
    async with await Peer.open(target) as peer:
        message = wire_requests.message(LONG, b"one", properties={"p": LONG})
        await ask(peer, f"{MESSAGING}/SendMessage", wire_requests.send([message]))
    return ""


def describes(*patterns: str) -> Attack:
    """Each pattern asked for once, all at the same time."""

    async def attack(target: Target) -> str:
        async with await Peer.open(target) as peer:
            streams = [
                peer.ask(DESCRIBE, queue_pb2.DescribeQueuesRequest(topic_pattern=each))
                for each in patterns
            ]
            answers = [await peer.answered(each, HOLD_S) for each in streams]
            return words_of(answers[0].message, peer.said)

    return attack


def words_of(message: bytes, said: str) -> str:
    with suppress(Exception):
        status = queue_pb2.DescribeQueuesResponse.FromString(message).status
        return f"{definition_pb2.Code.Name(status.code)}: {status.message[:100]}"
    return said


def filters(*expressions: str) -> Attack:
    """Receives with a SQL filter, each by a group of its own, so that each looks at the message."""

    async def attack(target: Target) -> str:
        async with await Peer.open(target) as peer:
            streams = []
            for number, expression in enumerate(expressions):
                request = wire_requests.receive(LONG, f"filters-{number}", wait_ms=100)
                request.filter_expression.type = definition_pb2.FilterType.SQL
                request.filter_expression.expression = expression
                streams.append(peer.ask(RECEIVE, request))
            for each in streams:
                await peer.answered(each, HOLD_S)
            await asyncio.sleep(0)
            return peer.said

    return attack


CASES: Final = (
    Case(
        number=6,
        name="topic-pattern",
        what="`topic_pattern` of eight `.*`, against a topic of 60 letters",
        attack=describes(".*" * 8 + "x", "(a|a)*" * 8 + "x", "a?" * 60 + "a" * 61),
        prepare=one_long_topic,
        by=WORKER,
    ),
    Case(
        number=6,
        name="topic-pattern-repeats",
        what="`topic_pattern` with counted repeats inside repeats",
        attack=describes(
            "a{1,250}" * 28,
            "((a{1,99}){1,99}){1,99}",
            "(?:" * 80 + "a" + ")*" * 80,
            "a{9}{9}{9}{9}",
        ),
        prepare=one_long_topic,
        by=WORKER,
        always=False,
    ),
    Case(
        number=6,
        name="sql-filters",
        what="SQL92 filters: deep, long, and LIKE with many %",
        attack=filters(
            "(" * 5_000 + "a = 1" + ")" * 5_000,
            "NOT " * 5_000 + "a = 1",
            " OR ".join(["a = 1"] * 5_000),
            "p LIKE '" + "%a" * 100 + "b'",
            "p IN (" + ",".join(["'a'"] * 5_000) + ")",
            "- " * 5_000 + "1 > 0",
        ),
        prepare=one_long_topic,
        by=WORKER,
    ),
)
