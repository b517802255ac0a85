"""Sends the page of metrics to a collector of OpenTelemetry: off without `metrics.otlp`.

    event loop: the page ──pipe──► otlp_sender, a process of its own ──OTLP over HTTP──► collector
                          ◄──line── "" or why it did not go

The packages that speak OTLP, and the work of turning the page into it, are that process' alone: the
broker makes the text that a Prometheus would get, and no more. What cannot be sent is left out: the
next page has the newer figures.
"""

import asyncio
import logging
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Final, Self

from latermq_broker.background.jobs import EXPORT, Background, in_turns
from latermq_broker.config.config import MetricsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.observability.metrics_endpoint import Page
from latermq_broker.observability.otlp_frame import frame

log = logging.getLogger("latermq.metrics")

SENDER: Final = "latermq_broker.observability.otlp_sender"
PACKAGE: Final = "opentelemetry.exporter.otlp.proto.http"
ANSWER_S_MAX: Final = 30.0  # the sender itself gives up after 10
END_S_MAX: Final = 2.0


class OtlpExport:
    """Exports while it is entered, every `metrics.otlp_interval_ms`.

    Args:
        page: as `MetricsEndpoint` has it.
        name: of the broker, which tells its series from others'.
        background: gives the page its turns.
    """

    def __init__(
        self, config: MetricsConfig, page: Page, name: str, background: Background
    ) -> None:
        self._config = config
        self._page = page
        self._name = name
        self._background = background
        self._sender: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""  # the last that was logged; "": it goes

    async def __aenter__(self) -> Self:
        """Begin. Raises ConfigError: the packages are not installed."""
        if not self._config.otlp:
            return self
        if not _installed():
            raise ConfigError("metrics.otlp", "needs OpenTelemetry: pip install 'latermq[otlp]'")
        self._task = asyncio.get_running_loop().create_task(self._run())
        log.info("metrics exported", extra={"otlp": self._config.otlp})
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
        await self._let_go()

    async def _run(self) -> None:
        while True:
            try:
                trouble = await self._export()
            except (OSError, EOFError, TimeoutError) as error:
                trouble = f"the process that sends them ended: {error!r}"
                await self._let_go()
            except Exception as error:
                log.exception("metrics failed")
                trouble = repr(error)
            self._tell(trouble)
            await asyncio.sleep(self._config.otlp_interval_ms / 1_000)

    async def _export(self) -> str:
        """Send a page; return why it did not get there, "" when it did."""
        text = await in_turns(self._background, EXPORT, self._page)
        sender = self._sender
        if sender is None:
            sender = self._sender = await asyncio.create_subprocess_exec(
                sys.executable, "-m", SENDER, self._config.otlp, self._name,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        assert sender.stdin is not None
        assert sender.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            sender.stdin.write(frame(text.encode()))
            await sender.stdin.drain()
            line = await sender.stdout.readuntil(b"\n")
        return line.decode().strip()

    async def _let_go(self) -> None:
        """Have the sender end: it does when it is told nothing more."""
        sender, self._sender = self._sender, None
        if sender is None:
            return
        assert sender.stdin is not None
        sender.stdin.close()
        try:
            async with asyncio.timeout(END_S_MAX):
                await sender.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                sender.kill()
            await sender.wait()

    def _tell(self, trouble: str) -> None:
        """Log what has changed."""
        fields = {"otlp": self._config.otlp}
        if trouble and not self._trouble:
            log.warning("metrics not exported", extra={**fields, "reason": trouble})
        elif self._trouble and not trouble:
            log.info("metrics exported again", extra=fields)
        self._trouble = trouble


def _installed() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:  # one of the packages above it
        return False
