"""A signed-in person at a console, in a process of its own: pages at fixed instants.

    python -m abuse.console.person URL ACCESS_KEY SECRET

It prints what `abuse.neighbour` prints: `sent` of a page, `fresh` of a newcomer, who comes by a new
connection and is shown the form to sign in; the first line is the session's cookie.
"""

import asyncio
import re
import sys
import time
from itertools import cycle
from typing import Final

import httpx

from abuse.neighbour import FRESH, FRESH_EVERY_S, say

EVERY_S: Final = 0.1
PAGES: Final = ("/", "/groups", "/topics", "/dead", "/broker", "/jobs", "/clients")
UNDER_WAY_MAX: Final = 100
TIMEOUT_S: Final = 20.0
COOKIE: Final = "latermq_console"


async def sign_in(client: httpx.AsyncClient, access_key: str, secret: str) -> int:
    """Fill in the form; return the answer's status."""
    page = (await client.get("/sign-in")).text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None, "the form to sign in has a token"
    form = {"csrf": token[1], "access_key": access_key, "secret": secret}
    return (await client.post("/sign-in", data=form)).status_code


class Person:
    def __init__(self, url: str, access_key: str, secret: str) -> None:
        self._url = url
        self._named = (access_key, secret)
        self._client = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S)
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        status = await sign_in(self._client, *self._named)
        assert status == 303, f"not signed in: {status}"
        say("came", self._client.cookies[COOKIE])
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._newcomers())
            await self._look_on_time()

    async def _look_on_time(self) -> None:
        due_s = time.monotonic()
        for path in cycle(PAGES):
            due_s += EVERY_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if len(self._under_way) >= UNDER_WAY_MAX:
                say("failed", due_s, "too many others wait")
                continue
            looking = asyncio.create_task(self._look(path, due_s))
            self._under_way.add(looking)
            looking.add_done_callback(self._under_way.discard)

    async def _look(self, path: str, due_s: float) -> None:
        try:
            answer = await self._client.get(path)
        except httpx.HTTPError as error:
            say("failed", due_s, repr(error))
            return
        if answer.status_code == 200:
            say("sent", due_s, (time.monotonic() - due_s) * 1_000)
        else:
            say("failed", due_s, f"{path}: {answer.status_code}")

    async def _newcomers(self) -> None:
        while True:
            due_s = time.monotonic()
            try:
                async with httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT_S) as client:
                    (await client.get("/sign-in")).raise_for_status()
            except httpx.HTTPError as error:
                say("failed", due_s, FRESH, repr(error))
            else:
                say("fresh", due_s, (time.monotonic() - due_s) * 1_000)
            await asyncio.sleep(FRESH_EVERY_S)


if __name__ == "__main__":
    asyncio.run(Person(*sys.argv[1:4]).run())
