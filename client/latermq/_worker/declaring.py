"""A worker's word, every 10 s, that it runs and which schedules its code has."""

import asyncio
import logging
from typing import Final

from latermq._connection.tasks import Tasks
from latermq._values.identity import new_client_id
from latermq._worker.declared import Declared
from latermq.admin import AsyncAdmin
from latermq.errors import LaterMQError, UnsupportedError
from latermq_proto.latermq.v1 import schedule_pb2

log = logging.getLogger("latermq.worker")

REPEAT_S: Final = 10.0  # the broker takes 45 s of silence for the worker's end
SOON_S: Final = 3.0  # for an answer
FAREWELL_S_MAX: Final = 1.0


class Declaring:
    """Prepares the broker for one worker, and declares its schedules until `end`."""

    def __init__(self, admin: AsyncAdmin, app: str, declared: Declared) -> None:
        self._admin = admin
        self._app = app
        self._declared = declared
        self._request = schedule_pb2.DeclareSchedulesRequest(
            app=app, worker=new_client_id(), names=declared.schedules
        )
        self._tasks = Tasks()
        self._begun = False

    async def begin(self, *, alter: bool) -> None:
        """Prepare what is declared; then declare the schedules, now and from now on.

        Raises: as `Declared.prepare`.
        """
        await self._declared.prepare(self._admin, self._app, alter=alter)
        if self._begun or not self._request.names:
            return
        self._begun = True
        await self._tell(SOON_S)
        self._tasks.start(self._repeat(), "latermq schedules declared")

    async def end(self) -> None:
        """Say that this worker ends."""
        if not self._begun:
            return
        self._begun = False
        await self._tasks.cancel()
        self._request.ends = True
        await self._tell(FAREWELL_S_MAX)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT_S)
            if not await self._tell(SOON_S):
                return

    async def _tell(self, timeout_s: float) -> bool:
        """Return whether it is worth to be told again."""
        method = self._admin.schedules.DeclareSchedules
        try:
            await self._admin.call(method, self._request, timeout_s=timeout_s)
        except UnsupportedError:
            return False
        except LaterMQError as error:
            log.debug("schedules are not declared: %s", error)
        return True
