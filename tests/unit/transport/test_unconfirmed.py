"""Answers that were sent, and a connection that breaks: which of them arrived."""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import pytest

from latermq_broker.services.call.handler import Call, Method
from latermq_broker.transport.unconfirmed import (
    ASKED_FROM,
    KEPT_MAX,
    LOOK_S,
    Unconfirmed,
    UnconfirmedUnderTls,
    acknowledged_bytes,
)
from latermq_h2.http2 import frames
from support.grpc_served import Served
from support.http2_peer import HELLO, REQUEST, SETTINGS_ACK, data, headers
from support.machine import patient

MESSAGE = struct.pack(">BI", 0, 3) + b"one"


class Peer:
    """What the kernel tells of one, and how often it was asked."""

    def __init__(self, acknowledged: int) -> None:
        self.acknowledged = acknowledged
        self.given = acknowledged
        self.asked = 0
        self.closed = False
        self.bytes_told = 256
        self.knows = True  # what TCP_INFO is

    def fileno(self) -> int:
        return -1 if self.closed else 7

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        assert (level, name) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        self.asked += 1
        if not self.knows:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        again, unsent = 7, min(self.given, 50)
        counts = (self.acknowledged, unsent, self.given - unsent + again, again)
        info = struct.pack("=120xQ16xI52xQQ", *counts) + bytes(32)
        return info[: min(size, self.bytes_told)]

    @property
    def socket(self) -> socket.socket:
        return cast(socket.socket, self)


def lost_of(peer: Peer, ends: Sequence[int], how: str = "lose") -> list[int]:
    """Which of the answers that end there are lost."""
    lost: list[int] = []
    unconfirmed = Unconfirmed(peer.socket)
    for end in ends:
        unconfirmed.add(partial(lost.append, end), end)
    getattr(unconfirmed, how)()
    return lost


@pytest.mark.parametrize("count", [1, ASKED_FROM - 1, ASKED_FROM, 3 * ASKED_FROM])
def test_what_was_acknowledged_arrived_and_what_was_not_is_lost(count: int) -> None:
    ends = range(100, 100 * (count + 1), 100)
    for arrived in range(count + 1):
        for beyond in (0, 99):
            if arrived or beyond:
                assert lost_of(Peer(100 * arrived + beyond), ends) == [*ends[arrived:]]


def test_a_connection_that_ends_in_order_loses_nothing() -> None:
    assert lost_of(Peer(150), [100, 200, 300], "confirm_all") == []


def test_the_kernel_is_asked_for_a_few_at_once() -> None:
    peer = Peer(1 << 40)
    assert lost_of(peer, range(1, 401)) == []
    assert peer.asked == 400 // ASKED_FROM + 1
    peer = Peer(1)  # nothing of it arrives
    lost_of(peer, range(100, 300))
    assert peer.asked < 10


def test_no_more_are_kept_than_a_bound() -> None:
    ends = range(10, 10 + 5 * KEPT_MAX)
    lost = lost_of(Peer(1), ends)
    assert KEPT_MAX <= len(lost) <= 2 * KEPT_MAX
    assert lost == [*ends[-len(lost) :]]


def test_where_nothing_is_told_all_arrived() -> None:
    silent, short, closed, strange = Peer(0), Peer(100), Peer(100), Peer(100)
    short.bytes_told, closed.closed, strange.knows = 104, True, False
    for peer in (silent, short, closed, strange):
        assert acknowledged_bytes(peer.socket) > 1 << 50
    assert acknowledged_bytes(None) > 1 << 50
    assert acknowledged_bytes(Peer(100).socket) == 100


def test_one_that_cannot_be_done_keeps_none_from_the_others() -> None:
    lost: list[int] = []
    unconfirmed = Unconfirmed(Peer(1).socket)
    unconfirmed.add(lambda: lost.remove(0), 10)
    unconfirmed.add(partial(lost.append, 20), 20)
    unconfirmed.lose()
    assert lost == [20]


class Later:
    """What is done at the next look, if one is asked for."""

    def __init__(self) -> None:
        self.asked: Callable[[], None] | None = None

    def __call__(self, delay_s: float, look: Callable[[], None]) -> "Later":
        assert delay_s == LOOK_S
        assert self.asked is None
        self.asked = look
        return self

    def cancel(self) -> None:
        assert self.asked is not None
        self.asked = None

    def look(self) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        asked()


class UnderTls:
    """A connection under TLS, and what was lost with it."""

    def __init__(self) -> None:
        self.peer, self.later = Peer(5_000), Later()  # a handshake
        self.lost: list[str] = []
        self._all = UnconfirmedUnderTls(self.peer.socket, self.later)

    def answer(self, name: str) -> None:
        self._all.add(partial(self.lost.append, name), 17)  # which is of no use
        self.peer.given += 1_000

    def loses(self, *, closed: bool = True) -> list[str]:
        """Tell what it loses when it ends; its socket is closed by then, as a rule."""
        self.peer.closed = closed
        self._all.lose()
        assert self.later.asked is None
        return self.lost

    def end(self) -> None:
        self._all.confirm_all()


def test_under_tls_what_was_not_acknowledged_one_look_later_is_lost() -> None:
    one = UnderTls()
    one.answer("a")
    one.answer("b")
    one.later.look()
    one.answer("c")
    one.peer.acknowledged += 1_999  # of both
    one.later.look()
    one.answer("d")
    assert one.loses() == ["a", "b"]


def test_under_tls_what_was_acknowledged_late_arrived() -> None:
    one = UnderTls()
    one.answer("a")
    one.later.look()
    one.later.look()
    one.peer.acknowledged += 1_000
    one.later.look()
    assert one.later.asked is None  # nobody is asked when nothing is kept
    one.answer("b")
    one.later.look()
    one.answer("c")
    assert one.loses() == []


def test_under_tls_the_kernel_is_asked_as_long_as_it_answers() -> None:
    one = UnderTls()
    one.answer("a")
    one.later.look()
    one.answer("b")
    assert one.loses(closed=False) == ["a"]


def test_under_tls_a_connection_that_ends_in_order_loses_nothing() -> None:
    one = UnderTls()
    one.answer("a")
    one.later.look()
    one.later.look()
    one.answer("b")
    one.end()
    assert one.later.asked is None
    assert one.loses() == []


def test_under_tls_where_nothing_is_told_all_arrived() -> None:
    for bytes_told, knows, acknowledged in (
        (200, True, 5_000),
        (256, False, 5_000),
        (256, True, 0),
    ):
        one = UnderTls()
        one.peer.bytes_told, one.peer.knows = bytes_told, knows
        one.peer.acknowledged = acknowledged
        one.answer("a")
        one.later.look()
        assert one.later.asked is None
        assert one.loses() == []


def test_under_tls_no_more_are_kept_than_a_bound() -> None:
    one = UnderTls()
    for number in range(5 * KEPT_MAX):
        one.answer(str(number))
        if number % 300 == 299:
            one.later.look()
    one.later.look()
    one.later.look()
    assert KEPT_MAX <= len(one.loses()) <= 2 * KEPT_MAX
    assert one.lost[-1] == str(5 * KEPT_MAX - 1)


@pytest.mark.parametrize("arrived", [True, False])
async def test_who_was_answered_is_told_if_the_answer_did_not_arrive(arrived: bool) -> None:
    """The bytes that end an answer are counted as they are written.

    Who asked only for a call that is cancelled is not told: the call was answered.
    """
    told: list[str] = []

    def leases(request: bytes, call: Call) -> list[bytes]:
        call.on_cancel(partial(told.append, "cancelled"))
        call.on_lost(partial(told.append, "lost"))
        return [request, bytes(40_000)]

    peer = Peer(1)
    served = Served(peer=peer.socket, more={b"/s/R": Method.server_stream(leases)})
    served.send(HELLO + SETTINGS_ACK)
    sent = len(served.connection.take())
    served.send(headers(1, block=REQUEST.replace(b"/s/M", b"/s/R")) + data(1, MESSAGE, end=True))
    sent += len(served.connection.take())
    served.send(frames.frame(frames.PING, 0, 0, bytes(8)))
    served.connection.take()
    peer.acknowledged = sent if arrived else sent - 1
    served.serving.lost()
    assert told == []
    served.unconfirmed.lose()
    assert told == ([] if arrived else ["lost"])
    served.unconfirmed.lose()
    assert len(told) < 2


async def test_who_was_not_answered_whole_is_told_once() -> None:
    """It is cancelled: what is to be done for a lost answer was done so."""
    told: list[str] = []

    async def fails(request: bytes, call: Call) -> bytes:
        call.on_cancel(partial(told.append, "cancelled"))
        call.on_lost(partial(told.append, "lost"))
        raise ValueError

    served = Served(peer=Peer(1).socket, more={b"/s/R": Method.unary(fails)})
    served.send(HELLO + SETTINGS_ACK)
    served.send(headers(1, block=REQUEST.replace(b"/s/M", b"/s/R")) + data(1, MESSAGE, end=True))
    async with asyncio.timeout(patient(10)):
        while served.connection.open:
            await asyncio.sleep(0)
    assert told == ["cancelled"]
    served.connection.take()
    served.serving.lost()
    served.unconfirmed.lose()
    assert told == ["cancelled"]
