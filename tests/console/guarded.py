"""A broker that has users, with something there for each verb of the console."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final
from unittest.mock import patch

import latermq
from latermq import admin
from latermq.admin import AsyncAdmin
from latermq_proto.latermq.v1 import limit_pb2, schedule_pb2, user_pb2
from support import console_story as shop
from support.machine import patient

ROOT, SECRET = "root", "the-secret-of-root"
CLERK, CLERK_SECRET = "clerk", "the-secret-of-clerk"
CONFIG: Final = (
    f'[auth]\nenabled = true\nroot_access_key = "{ROOT}"\nroot_secret_key = "{SECRET}"\n'
)
LETTERS: Final = 30  # of `returning`; a job that takes one a second can be stopped
DELAYED: Final = ("expedited", "postponed", "cancelled")  # topics, with one message each
HALF: Final = ("committed", "rolled-back")  # keys of open transactions
SCHEDULES: Final = ("ticking", "resting", "leaving")  # the second one is paused
USERS: Final = ("staying", "away", "granted", "revoked")  # the second one is disabled


@contextmanager
def as_root() -> Iterator[None]:
    """Have clients that name no user be root's."""
    with patch.dict(os.environ, LATERMQ_ACCESS_KEY=ROOT, LATERMQ_SECRET_KEY=SECRET):
        yield


async def fill(endpoint: str) -> None:
    """Make what there is to be seen and changed."""
    await shop.tell(endpoint)
    for topic, group in (("returns", "returning"), ("moves", "moved")):
        await shop.make_topic(endpoint, topic, queues=1)
        await shop.make_groups(endpoint, group)
    await shop.make_groups(endpoint, "altered", "deleted")
    for topic in ("changed", "dropped"):
        await shop.make_topic(endpoint, topic)
    for name in SCHEDULES:
        await shop.make_schedule(endpoint, name, "reminders", cron="0 0 29 2 *")
    async with latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["comma"] * LETTERS, topic="returns")
        await shop.work(mq, LETTERS * shop.ATTEMPTS, topic="returns", group="returning")
        await shop.send_orders(mq, ["fine"] * 3, topic="moves")
        await shop.work(mq, 3, topic="moves", group="moved")
        for topic in DELAYED:
            await mq.send(topic, b"later", keys=[topic], delay=timedelta(hours=1))
        for key in HALF:
            open_one = mq.transaction(
                "payments", b"{}", keys=[key], check_after=timedelta(minutes=9)
            )
            await open_one.__aenter__()
    asked = admin.connect_async(endpoint)
    try:
        await _make_users(asked)
        resting = schedule_pb2.ScheduleRequest(name="resting")
        await asked.call(asked.schedules.PauseSchedule, resting)
        limit = limit_pb2.Limit(scope=limit_pb2.Limit.GROUP, name="slow", in_flight=7)
        await asked.call(asked.limits.SetLimit, limit_pb2.SetLimitRequest(limit=limit))
    finally:
        await asked.close()


async def _make_users(asked: AsyncAdmin) -> None:
    users = asked.users
    for name, secret in [(CLERK, CLERK_SECRET), *((each, SECRET) for each in USERS)]:
        made = user_pb2.CreateUserRequest(access_key=name, secret=secret)
        await asked.call(users.CreateUser, made)
    away = user_pb2.AlterUserRequest(access_key="away", disabled=True)
    await asked.call(users.AlterUser, away)
    for name in (CLERK, "revoked"):
        grant = user_pb2.Grant(
            kind=user_pb2.Grant.GROUP, pattern=shop.GROUP, rights=["browse", "body"]
        )
        request = user_pb2.ChangeGrantRequest(access_key=name, grant=grant)
        await asked.call(users.GrantRights, request)


@contextmanager
def somebody_who_holds(endpoint: str) -> Iterator[None]:
    """A consumer of the group `holding`, with a message that it does not finish."""
    holds, over = threading.Event(), threading.Event()

    async def hold() -> None:
        async with latermq.connect(endpoint) as mq:
            await mq.send("held", b"x")
            consumer = mq.simple_consumer("held", group="holding")
            while not await consumer.receive(1, invisible=timedelta(minutes=10)):
                pass
            holds.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(hold(),))
    thread.start()
    try:
        assert holds.wait(patient(60))
        yield
    finally:
        over.set()
        thread.join()
