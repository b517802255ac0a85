"""Every attack against a console process with a signed-in person: what it may cost, and its end.

An attack that made the person wait is tried again: the console's fault shows each time, the
machine's does not.
"""

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from abuse.console.attacks import CASES
from abuse.console.siege import Case, ConsoleSiege, is_late
from abuse.memory import Peak
from abuse.siege import FRESH_MS_MAX, PEAK_MIB_MAX, SLOWER_MAX, Figures
from latermq_broker.transport.tls import _make_own
from support.machine import patient

TRIES = 3


class Held:
    """The console that is attacked; another one after one that ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._siege: ConsoleSiege | None = None
        self._lives = 0

    async def siege(self) -> ConsoleSiege:
        if self._siege is None or not self._siege.running:
            self.stop()
            self._lives += 1
            self._siege = ConsoleSiege(self._directory / str(self._lives) / "data")
            await self._siege.start()
        return self._siege

    def stop(self) -> None:
        if self._siege is not None:
            siege, self._siege = self._siege, None
            siege.stop()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    pytest.importorskip("uvicorn")
    found = Held(tmp_path_factory.mktemp("console"))
    yield found
    found.stop()


def faults(case: Case, figures: Figures) -> list[str]:
    """Return what was promised of the case and does not hold."""
    found = {
        f"peak RSS {figures.peak_mib:.0f} MiB": figures.peak_mib > PEAK_MIB_MAX,
        f"not back after {figures.back_s:.0f} s: {figures.why_not_back}": bool(
            figures.why_not_back
        ),
        f"a person's p99 {figures.p99_ms:.0f} ms, calm {figures.calm_p99_ms:.0f}": (
            figures.p99_ms > SLOWER_MAX * figures.calm_p99_ms
        ),
        f"newcomers wait for {figures.fresh_ms:.0f} ms": figures.fresh_ms > FRESH_MS_MAX,
        f"{figures.failed} of the person's requests failed": figures.failed > 0,
    }
    return [text for text, broken in found.items() if broken]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[int, int, Path]]:
    """A console that serves https before a broker that is away: its pid, port and certificate."""
    pytest.importorskip("cryptography")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _make_own(certificate, key)
    words = ["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1", "--json"]
    files = ["--certificate", str(certificate), "--private-key", str(key)]
    command = [sys.executable, "-m", "latermq_cli", "console", *words, *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        try:
            url = json.loads(console.stdout.readline())["url"]
            yield console.pid, int(url.rpartition(":")[2]), certificate
        finally:
            console.terminate()
            console.wait(patient(30))


@pytest.mark.timeout(330)
async def test_silent_sockets_before_a_handshake_take_little(
    secure: tuple[int, int, Path],
) -> None:
    pid, port, certificate = secure
    context = ssl.create_default_context(cafile=str(certificate))
    with Peak(pid) as peak:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(900)]
        async with (
            asyncio.timeout(patient(30)),
            httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=context) as client,
        ):
            assert (await client.get("/healthz", timeout=None)).text == "ok\n"
        assert peak.mib < PEAK_MIB_MAX
    for _, writer in silent:
        writer.transport.abort()
    for _, writer in silent:
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.timeout(330)
async def test_it_holds(case: Case, held: Held) -> None:
    siege = await held.siege()
    async with asyncio.timeout(patient(TRIES * (case.seconds_max + 60))):
        for _ in range(TRIES):
            figures = await siege.endure(case)
            print(figures.line(), figures.why_not_back)
            if not is_late(figures):
                break
    assert not faults(case, figures)
