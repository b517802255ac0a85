"""A replicated log for tests: one total order in a process of its own, and the adapter to it.

    python -m support.log_server PORT       prints the port that it serves at

It keeps entries in memory and acknowledges each when it has it. Stopped, it does
not answer. A request is a line of JSON, and so is the answer; who tails it gets one an entry.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

from latermq_broker.deferred import Later
from latermq_broker.errors import EntriesGoneError, LogUnavailableError
from latermq_broker.replication.entry import Entry, Offset

LINE_BYTES_MAX: Final = 8 << 20
ANSWER_S: Final = 5.0


class LogServer:
    """One log. What is trimmed stays in the list, as nothing."""

    def __init__(self) -> None:
        self.entries: list[str] = []  # hex
        self.begin = 0
        self._grown = asyncio.Event()

    async def serve(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._meet, "127.0.0.1", port, limit=LINE_BYTES_MAX)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                request = json.loads(line)
                if "tail" in request:
                    await self.tail(request["tail"], writer)
                answer = {"id": request["id"], "answer": self._do(request)}
                writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    def _do(self, request: dict[str, Any]) -> int:
        if "append" in request:
            return self.append(request["append"])
        if "trim" in request:
            self.begin = max(self.begin, request["trim"])
            self.entries[: self.begin] = [""] * self.begin
        return len(self.entries)

    def append(self, entry: str) -> int:
        """Give the offset of an entry, in hex, that everybody who tails is given."""
        self.entries.append(entry)
        self._grown.set()
        return len(self.entries) - 1

    async def tail(self, offset: int, writer: asyncio.StreamWriter) -> None:
        offset = offset or self.begin
        while True:
            while offset < len(self.entries):
                if offset < self.begin:  # also of a reader that trimming has overtaken
                    writer.write(b'{"gone": true}\n')
                    return
                entry = {"offset": offset, "entry": self.entries[offset]}
                writer.write(json.dumps(entry).encode() + b"\n")
                offset += 1
            await writer.drain()
            if offset == len(self.entries):  # else they came while the reader was slow
                self._grown.clear()
                await self._grown.wait()


class ServedLog:
    """The adapter: a `ReplicatedLog` on a LogServer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: dict[int, Later[Offset]] = {}
        self._id = 0
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting = asyncio.Lock()
        self._unsent: list[bytes] = []

    async def claim(self, fence: bytes) -> Offset:
        return await self._ask({"append": fence.hex()})

    def append(self, batch: bytes) -> Later[Offset]:
        return self._ask({"append": batch.hex()})

    async def tail(self, offset: Offset) -> AsyncGenerator[Entry, None]:
        try:
            reader, writer = await self._connected()
            writer.write(json.dumps({"tail": offset}).encode() + b"\n")
            try:
                while line := await reader.readline():
                    said = json.loads(line)
                    if "gone" in said:
                        raise EntriesGoneError(f"entry {offset} was trimmed")
                    yield Entry(said["offset"], bytes.fromhex(said["entry"]))
            finally:
                writer.close()
        except OSError as error:
            raise LogUnavailableError(str(error)) from error
        raise LogUnavailableError("the server went away")

    async def trim(self, offset: Offset) -> None:
        await self._ask({"trim": offset})

    async def end(self) -> Offset:
        return await self._ask({"end": True})

    async def canary(self) -> None:
        await self._ask({"end": True})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._writer is not None:
            self._writer.close()
        self._gone("closed")

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=LINE_BYTES_MAX)

    def _ask(self, request: dict[str, Any]) -> Later[Offset]:
        self._id += 1
        number = self._id
        later = self._open[number] = Later[Offset]()
        asyncio.get_running_loop().call_later(ANSWER_S, self._too_late, number)
        self._unsent.append(json.dumps({"id": number} | request).encode() + b"\n")
        self._begin(self._send())
        return later

    async def _send(self) -> None:
        async with self._connecting:
            try:
                if self._writer is None:
                    reader, self._writer = await self._connected()
                    self._begin(self._listen(reader))
                lines, self._unsent = self._unsent, []
                self._writer.writelines(lines)
            except OSError as error:
                self._gone(str(error))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                said = json.loads(line)
                later = self._open.pop(said["id"], None)
                if later is not None:
                    later.give(said["answer"])
        self._gone("the server went away")

    def _too_late(self, number: int) -> None:
        later = self._open.pop(number, None)
        if later is not None:
            later.fail(LogUnavailableError("no answer"))

    def _gone(self, why: str) -> None:
        self._writer = None
        self._unsent.clear()
        waiting, self._open = list(self._open.values()), {}
        for later in waiting:
            later.fail(LogUnavailableError(why))

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def main() -> None:
    server = await LogServer().serve(int(sys.argv[1]))
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
