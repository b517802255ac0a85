"""The replicated log of tests gives who tails it all that it has."""

import asyncio
from typing import Any, cast

from support.log_server import LogServer


class SlowReader:
    """While it is waited for, something is appended."""

    def __init__(self, server: LogServer) -> None:
        self.server = server
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.lines.append(line)

    async def drain(self) -> None:
        await asyncio.sleep(0)
        if len(self.lines) == 1:
            self.server.append("bb")


async def test_what_comes_while_a_reader_is_slow_is_given_though_nothing_follows() -> None:
    server = LogServer()
    server.append("aa")
    reader = SlowReader(server)
    tailing = asyncio.create_task(server.tail(0, cast(Any, reader)))
    async with asyncio.timeout(10):
        while len(reader.lines) < 2:
            await asyncio.sleep(0)
    tailing.cancel()
