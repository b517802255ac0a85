"""A consumer takes another filter, as an official client of any language may at any time.

Collected as `client_cases`. The client's receive that waits goes on with the older filter, and a
push consumer may for as long as it lives: what the newer filter wants has to come all the same.
"""

import time
from typing import Final

from interop.client_cases import Line
from interop.official import OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.machine import patient

COMES_S: Final = patient(30.0)
SENT: Final = [f"b{number}" for number in range(5)]


def subscribe(line: Line, consumer: str, tags: str) -> None:
    line.official.call("subscribe", name=consumer, topic=line.topic, tags=tags)


def received(line: Line, consumer: str) -> list[str]:
    """Receive once and acknowledge: the bodies, none too where that is an error (Go)."""
    try:
        messages = line.official.call("receive", name=consumer)
    except OfficialError as error:
        if error.code != definition_pb2.Code.MESSAGE_NOT_FOUND:
            raise
        return []
    for message in messages:
        line.ack(consumer, message)
    return [text(message) for message in messages]


class ChangedFilterCases:
    def test_changed_filter_of_a_simple_consumer_that_waits(self, line: Line) -> None:
        consumer = line.simple("a")
        line.send("a0", tag="a")
        assert received(line, consumer) == ["a0"]
        waiting = line.official.begin("receive", name=consumer)
        time.sleep(1)
        assert not waiting.done()
        subscribe(line, consumer, "b")
        for body in SENT:
            line.send(body, tag="b")
        got: list[str] = []
        until_s = time.monotonic() + COMES_S
        while len(got) < len(SENT) and time.monotonic() < until_s:
            got += received(line, consumer)
        assert sorted(got) == SENT

    def test_changed_filter_of_a_push_consumer(self, line: Line) -> None:
        """To itself, or to another consumer of the group if it goes on with the older one (Go)."""
        push = line.push(tags="a")
        line.send("a0", tag="a")
        line.official.wait_consumed(push, 1)
        subscribe(line, push, "b")
        for body in SENT:
            line.send(body, tag="b")
        other = line.simple("b")
        by_other: list[str] = []
        until_s = time.monotonic() + COMES_S
        while time.monotonic() < until_s:
            by_other += received(line, other)
            by_push = [text(one) for one in line.official.consumed(push)]
            if len(by_push) + len(by_other) > len(SENT):
                break
        assert sorted(by_push + by_other) == ["a0", *SENT]
        line.official.call("shutdown", name=push)
