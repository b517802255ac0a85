"""A console before a broker with users, a signed-in person, and what attacks cost that person."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

import httpx

import latermq
from abuse.console.person import COOKIE, EVERY_S, sign_in
from abuse.memory import status_mib
from abuse.siege import (
    ANSWER_S_MAX,
    OTHER,
    ROOT,
    SLOWER_MAX,
    WORKER,
    Figures,
    Load,
    endured,
)
from latermq import admin
from latermq_proto.latermq.v1 import user_pb2
from support.broker_process import BrokerProcess
from support.console_story import policy
from support.machine import patient

CALM_S: Final = 4.0
BACK_S_MAX: Final = patient(5.0)
GROWTH_MIB_MAX: Final = 100.0
FILES_MORE_MAX: Final = 12  # descriptors of newcomers, and of calls under way
GROUP: Final = "letters"
NESTED: Final = b"[" + b",".join([b"[" * 400 + b"]" * 400] * 80) + b"]"  # 64 KiB
CONFIG: Final = f"""
[auth]
enabled = true
root_access_key = "{ROOT.access_key}"
root_secret_key = "{ROOT.secret}"
"""


class Place(NamedTuple):
    """Where the console is, and what an attacker may have come by."""

    host: str
    port: int
    cookie: str  # of a session of another user, for those attacks that are signed in
    message_ids: tuple[str, ...]  # of letters of GROUP, by offset

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


Attack = Callable[[Place], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attack; fields as those of `abuse.siege.Case`."""

    name: str
    attack: Attack
    answers: str = ""
    seconds_max: float = 30.0


class ConsoleSiege:
    """One broker, one console; attacked one case at a time."""

    def __init__(self, data_dir: Path) -> None:
        self._broker = BrokerProcess(data_dir, config=CONFIG)
        self._console: subprocess.Popen[str]
        self._load: Load
        self._place: Place

    async def start(self) -> Self:
        self._broker.start()
        await asyncio.to_thread(self._users)
        message_ids = await self._letters()
        self._console = subprocess.Popen(
            [sys.executable, "-m", "latermq_cli", "console", "--json", "--listen", "127.0.0.1:0",
             "--endpoint", self._broker.endpoint],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._console.stdout is not None
        url = httpx.URL(json.loads(self._console.stdout.readline())["url"])
        async with httpx.AsyncClient(base_url=url) as client:
            assert await sign_in(client, *OTHER) == 303
            self._place = Place(url.host, url.port or 80, client.cookies[COOKIE], message_ids)
        self._load = Load.run(["abuse.console.person", str(url), *WORKER], EVERY_S)
        await self._load.until(lambda: len(self._load.fresh) >= 2, "newcomer")
        return self

    def stop(self) -> None:
        if hasattr(self, "_load"):
            self._load.stop()
        if hasattr(self, "_console"):
            self._console.terminate()
            self._console.wait(patient(30))
            assert self._console.stdout is not None
            self._console.stdout.close()
        with self._broker:
            pass

    @property
    def running(self) -> bool:
        return hasattr(self, "_load") and self._console.poll() is None

    async def endure(self, case: Case) -> Figures:
        """Measure calm, attack, measure, and wait until all is back."""
        await self._fresh_session()
        files = self._files()
        return await endured(
            self._load, self._console.pid, CALM_S, patient(case.seconds_max),
            attack=lambda: case.attack(self._place),
            back=lambda start_mib: self._back(files, start_mib),
        )  # fmt: skip

    async def _fresh_session(self) -> None:
        """Sign in again where an attack ended the session of the one who is signed in."""
        async with httpx.AsyncClient(base_url=self._place.url, timeout=ANSWER_S_MAX) as client:
            client.cookies.set(COOKIE, self._place.cookie)
            if (await client.get("/jobs")).status_code != 200:
                assert await sign_in(client, *OTHER) == 303
                self._place = self._place._replace(cookie=client.cookies[COOKIE])

    def _files(self) -> int:
        return len(os.listdir(f"/proc/{self._console.pid}/fd"))

    async def _back(self, files: int, start_mib: float) -> str:
        until_s = time.monotonic() + BACK_S_MAX
        while True:
            left = self._left(files, start_mib)
            if not left or time.monotonic() > until_s:
                return ", ".join(left)
            await asyncio.sleep(0.1)

    def _left(self, files: int, start_mib: float) -> list[str]:
        left = []
        if self._files() - files > FILES_MORE_MAX:
            left.append(f"{self._files() - files} more descriptors")
        grown_mib = status_mib(self._console.pid, "VmRSS") - start_mib
        if grown_mib > GROWTH_MIB_MAX:
            left.append(f"{grown_mib:.0f} MiB more")
        if not any(due_s > time.monotonic() - 2.0 for due_s, _ in self._load.fresh):
            left.append("no newcomer served in the last two seconds")
        return left

    def _users(self) -> None:
        with admin.connect(
            self._broker.endpoint, access_key=ROOT.access_key, secret=ROOT.secret
        ) as root:
            root.call(root.groups.CreateGroup, policy(GROUP))
            for user in (WORKER, OTHER):
                request = user_pb2.CreateUserRequest(
                    access_key=user.access_key, secret=user.secret, admin=True
                )
                root.call(root.users.CreateUser, request)

    async def _letters(self) -> tuple[str, ...]:
        """Send what is hard to show to the dead letters of GROUP."""
        many = "\x01" * (60 << 10)
        packed = {"body": b"x" * (4 << 20)}
        bodies = [NESTED, many.encode(), packed["body"], b'"' * (64 << 10)]
        async with latermq.connect(
            self._broker.endpoint, access_key=ROOT.access_key, secret=ROOT.secret
        ) as mq:
            return tuple([(await mq.send(f"%DLQ%{GROUP}", body)).message_id for body in bodies])


def is_late(figures: Figures) -> bool:
    """Tell whether the person waited for longer than SLOWER_MAX times as long as in calm."""
    return figures.p99_ms > SLOWER_MAX * figures.calm_p99_ms or bool(figures.why_not_back)
