"""The health port of a worker, and its file."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from latermq._worker import health
from latermq._worker.health import CONNECTIONS_MAX, HEAD_BYTES_MAX, Health


class Worker:
    """Says what its trouble is."""

    said = ""

    def trouble(self) -> str:
        return self.said


@asynccontextmanager
async def serving(
    worker: Worker, caplog: pytest.LogCaptureFixture, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[str, int]]:
    with caplog.at_level(logging.INFO, "latermq.worker"):
        async with Health(worker.trouble, None, f"{host}:0"):
            found = re.search(r"http://\[?([^]]+?)\]?:(\d+)/healthz", caplog.text)
            assert found is not None
            yield found[1], int(found[2])


async def said(place: tuple[str, int], request: bytes) -> str:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    return answer


async def ask(place: tuple[str, int], path: str, method: str = "GET") -> tuple[int, str]:
    answer = await said(place, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body.strip()


async def test_it_is_alive_while_it_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker()
    async with serving(worker, caplog) as place:
        assert await ask(place, "/readyz?verbose") == (200, "ok")
        worker.said = "no broker answers"
        assert await ask(place, "/readyz") == (503, "no broker answers")
        assert await ask(place, "/healthz") == (200, "ok")
        assert await ask(place, "/readyz", "HEAD") == (503, "")
        assert (await ask(place, "/readyz", "POST"))[0] == 405
        assert (await ask(place, "/"))[0] == 404
    with pytest.raises(ConnectionRefusedError):
        await ask(place, "/healthz")


@pytest.mark.parametrize("request_", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff \xff\r\n\r\n"])
async def test_nonsense_is_not_found(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Worker(), caplog) as place:
        assert (await said(place, request_)).startswith("HTTP/1.1 404 ")


async def test_what_is_too_long_or_late_is_not_answered(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Worker(), caplog) as place:
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES_MAX)
        with suppress(ConnectionResetError):  # some of it was not read
            assert await reader.read() == b""
        writer.close()
        monkeypatch.setattr(health, "ASKED_WITHIN_S", 0.05)
        assert await said(place, b"GET /healthz HTTP/1.1\r\n") == ""
        assert await ask(place, "/healthz") == (200, "ok")


async def test_nobody_keeps_probes_out(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Worker(), caplog) as place:
        held = [await asyncio.open_connection(*place) for _ in range(CONNECTIONS_MAX + 3)]
        assert await ask(place, "/healthz") == (200, "ok")
        assert await held[0][0].read() == b"", "the oldest went"
        for _, writer in held:
            writer.close()


async def test_an_address_that_has_most_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Worker(), caplog) as place:
        mine = await asyncio.open_connection(*place)
        held = [
            await asyncio.open_connection(*place, local_addr=("127.0.0.2", 0))
            for _ in range(CONNECTIONS_MAX + 3)
        ]
        assert await held[0][0].read() == b"", "its oldest went"
        mine[1].write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await mine[0].readline()).split()[1] == b"200"
        for _, writer in (mine, *held):
            writer.close()


async def test_its_end_leaves_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Worker(), caplog) as place:
        reader, writer = await asyncio.open_connection(*place)
        assert await ask(place, "/healthz") == (200, "ok")  # and that one is accepted, too
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("address", ["8080", ":8080", "localhost", "localhost:x", "a:65536", "a:²"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ValueError, match="should be HOST:PORT"):
        Health(lambda: "", None, address)


async def test_the_file_is_there_while_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TOUCHED_S", 0)
    worker, file = Worker(), tmp_path / "healthy"
    async with Health(worker.trouble, file, None):
        await until(file, there=True)
        worker.said = "ending"
        await until(file, there=False)
        worker.said = ""
        await until(file, there=True)
    assert not file.exists()


async def test_a_file_that_cannot_be_touched_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "TOUCHED_S", 0)
    file = tmp_path / "missing" / "healthy"
    async with Health(lambda: "", file, None):
        while not caplog.records:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [str(file) in each.getMessage() for each in caplog.records] == [True]
        file.parent.mkdir()
        await until(file, there=True)


async def until(file: Path, *, there: bool) -> None:
    while file.exists() is not there:
        await asyncio.sleep(0)
