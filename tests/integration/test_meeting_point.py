"""The meeting point by itself: what is handed over when, and what it does without descriptors."""

import asyncio
import os
import resource
import socket
import time
from pathlib import Path

import pytest

from latermq_broker.errors import HandoverError
from latermq_broker.handover.passing import (
    MeetingPoint,
    Port,
    Ports,
    Predecessor,
    meeting_point,
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "LOCK"
    path.touch()
    return path


def ports_of(*descriptors: int) -> Ports:
    return {"server.listen": Port("here:1", "here:1", descriptors)}


def test_the_sockets_are_those_of_the_moment(lock: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("", 0)) as second:
        now = [first]

        async def life() -> None:
            point = MeetingPoint(lock, lambda: ports_of(now[0].fileno()), lambda: None)
            point.open()
            now[0] = second
            found = await asyncio.to_thread(Predecessor.meet, lock)
            assert found is not None
            [taken] = found.take("server.listen", "here:1") or []
            with taken:
                assert taken.getsockname() == second.getsockname()
            found.close()
            point.close()
            assert await asyncio.to_thread(Predecessor.meet, lock) is None

        asyncio.run(life())


def test_who_was_not_answered_yet_finds_nobody(lock: Path) -> None:
    """It had connected when the broker began to go down."""

    async def life() -> Predecessor | None:
        point = MeetingPoint(lock, dict, lambda: None)
        point.open()
        asking = asyncio.get_running_loop().run_in_executor(None, Predecessor.meet, lock)
        time.sleep(0.1)  # the loop must not get to accept it
        point.close()
        return await asking

    assert asyncio.run(life()) is None


@pytest.mark.parametrize("kind", ["file", "connection"])
def test_what_does_not_listen_is_refused(lock: Path, kind: str) -> None:
    with lock.open() as file, socket.socket() as connection:
        wrong = file.fileno() if kind == "file" else connection.fileno()

        async def life() -> None:
            point = MeetingPoint(lock, lambda: ports_of(wrong), lambda: None)
            point.open()
            try:
                await asyncio.to_thread(Predecessor.meet, lock)
            finally:
                point.close()

        with pytest.raises(HandoverError, match="1 descriptors came, 1 of them are something else"):
            asyncio.run(life())


def test_without_a_descriptor_it_pauses(
    lock: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latermq_broker.handover.passing.ACCEPT_PAUSE_S", 0.02)
    faults = []

    async def life() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, fault: faults.append(fault))
        point = MeetingPoint(lock, dict, lambda: None)
        point.open()
        asking.connect(meeting_point(lock))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # all below it are taken
        try:
            await asyncio.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await loop.sock_recv(asking, 100) == b'{"ports": {}}'
        point.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.setblocking(False)
        asyncio.run(life())
    said = [one for one in caplog.messages if one == "not to be replaced for a moment"]
    assert faults == []
    assert 1 <= len(said) <= 11
