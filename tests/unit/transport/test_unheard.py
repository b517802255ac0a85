"""Answers that a client has to prove to have: a PING behind them, and a connection that breaks."""

from collections.abc import Callable
from functools import partial

import pytest

from latermq_broker.transport.unheard import ASKED_FROM, KEPT_MAX, Unheard
from latermq_h2.http2 import frames
from latermq_h2.http2.control import PROOF_PING
from support.grpc_served import Served
from support.http2_peer import HELLO, SETTINGS_ACK


class Timers:
    """What is to be done later, done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def later(self, seconds: float, do: Callable[[], None]) -> "Timers.One":
        assert seconds > 0
        self.waiting.append(do)
        return Timers.One(self, do)

    def fire(self) -> None:
        for do in list(self.waiting):
            self.waiting.remove(do)
            do()

    class One:
        def __init__(self, timers: "Timers", do: Callable[[], None]) -> None:
            self._timers, self._do = timers, do

        def cancel(self) -> None:
            if self._do in self._timers.waiting:
                self._timers.waiting.remove(self._do)


class Story:
    """One connection's answers, numbered as they were sent."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.pings = 0
        self.lost: list[int] = []
        self.unheard = Unheard(self.timers.later, self.ping)
        self.sent_count = 0

    def ping(self) -> None:
        self.pings += 1

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.sent_count = self.sent_count + 1
            self.unheard.add(partial(self.lost.append, number))


def test_the_answer_to_a_ping_proves_what_was_sent_before_it() -> None:
    story = Story()
    story.send(2)
    story.timers.fire()
    story.send()
    story.unheard.heard()
    story.unheard.lose()
    assert (story.lost, story.pings) == ([3], 1)
    assert not story.timers.waiting


def test_without_an_answer_nothing_is_proved() -> None:
    story = Story()
    story.send()
    story.timers.fire()
    story.send()
    assert (story.pings, story.timers.waiting) == (1, [])  # one question at a time
    story.unheard.lose()
    assert story.lost == [1, 2]


def test_a_connection_that_ends_in_order_loses_nothing() -> None:
    story = Story()
    story.send()
    story.unheard.forget()
    story.unheard.lose()
    assert (story.lost, story.timers.waiting, len(story.unheard)) == ([], [], 0)


def test_many_answers_are_asked_about_at_once_and_all_are_bounded() -> None:
    story = Story()
    story.send(ASKED_FROM)
    assert story.pings == 1
    story.send(3 * KEPT_MAX)
    assert len(story.unheard) == ASKED_FROM + KEPT_MAX
    story.unheard.heard()
    story.timers.fire()
    assert story.pings == 2
    story.unheard.heard()
    assert len(story.unheard) == 0
    story.timers.fire()
    story.unheard.ask()
    assert story.pings == 2  # nothing is left to ask about


@pytest.mark.parametrize("times", [1, 3])
async def test_only_answers_to_our_ping_count(times: int) -> None:
    served = Served()
    connection = served.serving.connection
    served.send(HELLO + SETTINGS_ACK)
    pong = frames.frame(frames.PING, frames.ACK, 0, PROOF_PING)
    served.send(pong)  # unasked
    assert connection.proofs == 0
    for count in range(1, times + 1):
        connection.ask_proof()
        assert PROOF_PING in connection.take()
        served.send(pong)
        assert connection.proofs == count
    served.send(pong)
    assert connection.proofs == times
