"""A console without its socket, and somebody who looks at it without a browser."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import unescape
from typing import Any, Final

import httpx

from latermq_console.server import application, opened
from latermq_console.serving.console import Console
from latermq_console.settings import Settings
from support.machine import patient

ORIGIN: Final = "http://127.0.0.1:8088"
WAIT_S: Final = patient(30)
Fields = dict[str, str | Sequence[str]]


class Visitor:
    """One browser: it keeps cookies, follows redirects, and sends back the token of its forms."""

    def __init__(self, app: Any, origin: str = ORIGIN) -> None:
        self.app = app
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=origin, follow_redirects=True
        )
        self.page = ""
        self.status = 0
        self.path = ""

    async def get(self, path: str, **headers: str) -> str:
        return self._seen(await self.client.get(path, headers=headers))

    async def post(self, path: str, **fields: str | Sequence[str]) -> str:
        """Submit a form as the page that is shown would."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.page)
        data: Fields = {"csrf": token[1] if token else "", **fields}
        data = {name.rstrip("_"): value for name, value in data.items()}
        return self._seen(await self.client.post(path, data=data))

    async def until(self, path: str, *words: str) -> str:
        """Look again and again until the page has all of these words."""
        async with asyncio.timeout(WAIT_S):
            await self.get(path)
            while any(word not in self.page for word in words):
                await asyncio.sleep(0.02)
                await self.get(path)
        return self.page

    async def sign_in(self, access_key: str, secret: str, next_: str = "/") -> str:
        await self.get(f"/sign-in?next={next_}")
        return await self.post("/sign-in", access_key=access_key, secret=secret, next_=next_)

    def _seen(self, answer: httpx.Response) -> str:
        self.status, self.page = answer.status_code, unescape(answer.text)
        self.path = answer.url.raw_path.decode()
        self.headers = answer.headers
        return self.page


@asynccontextmanager
async def visiting(endpoint: str, **fields: Any) -> AsyncIterator[tuple[Console, Visitor]]:
    """Open a console of its own and somebody who looks at it."""
    async with opened(Settings(endpoint=endpoint, **fields)) as console:
        visitor = Visitor(application(console))
        async with visitor.client:
            yield console, visitor
