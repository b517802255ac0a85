"""Addresses of a name: each gets its turn, and one that is silent keeps no other waiting."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from latermq._connection.lean.dialling import connected


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address that answers no connection: its backlog is full."""
    with socket.create_server(("127.0.0.2", 0), backlog=0) as made:
        address = made.getsockname()[:2]
        fillers = [socket.socket() for _ in range(8)]
        for each in fillers:
            each.setblocking(False)
            each.connect_ex(address)
        yield address
        for each in fillers:
            each.close()


def found_as(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_a_silent_address_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket, silent: tuple[str, int]
) -> None:
    found_as(monkeypatch, silent, listening.getsockname())
    with await asyncio.wait_for(connected("name", 1, 0), 10) as made:
        assert made.getpeername() == listening.getsockname()


async def test_a_refusing_address_is_passed_over_at_once(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()
    found_as(monkeypatch, gone, listening.getsockname())
    with await connected("name", 1, 0) as made:
        assert made.getpeername() == listening.getsockname()
    found_as(monkeypatch, gone)
    with pytest.raises(OSError, match="Connect call failed"):
        await connected("name", 1, 0)


async def test_each_address_is_the_first_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        found_as(monkeypatch, one.getsockname(), two.getsockname())
        for turn, server in enumerate((one, two, one)):
            with await connected("name", 1, turn) as made:
                assert made.getpeername() == server.getsockname()


async def test_a_name_without_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found_as(monkeypatch)
    with pytest.raises(OSError, match="has no address"):
        await connected("name", 1, 0)
