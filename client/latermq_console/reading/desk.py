"""One user's way to the broker: calls with that user's rights, and short memory for looks.

A look is a call that changes nothing. Those that several tabs take at the same time are one call,
and for LOOK_S the answer is remembered, so that what the broker is asked does not grow with tabs.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from latermq import Tls, admin
from latermq.admin import AsyncAdmin, Method
from latermq.errors import ClosedError, LaterMQError
from latermq_console import clock

LOOK_S: Final = 2.0
LOOKS_MAX: Final = 256
LOOK_BYTES_MAX: Final = 1 << 20  # of one answer that is remembered
LOOKS_BYTES_MAX: Final = 4 << 20  # of all of them
LOOKS_S_MAX: Final = 30.0  # nobody wants an older answer
CALL_TIMEOUT_S: Final = 15.0

Answer = TypeVar("Answer", bound=Message)
_Key = tuple[str, bytes]


class Desk:
    """Made inside a running loop; to be closed."""

    def __init__(
        self,
        endpoint: str,
        tls: bool | Tls,
        access_key: str = "",
        secret: str = "",
        named_by: str = "",
    ) -> None:
        """
        Args:
            named_by: the endpoint that the console was given, if its broker named this one.
        """
        self.access_key = access_key
        self._made_of = (endpoint, tls, access_key, secret)
        self._named_by = named_by or endpoint
        self.admin: AsyncAdmin = admin.connect_async(
            # "" and not None: what the environment says is for nobody who signs in here
            endpoint, tls=tls, access_key=access_key, secret=secret, client_id=None,
            named_by=(self._named_by,),
        )  # fmt: skip
        self._looks: OrderedDict[_Key, tuple[float, asyncio.Future[Any]]] = OrderedDict()
        self._sizes: dict[_Key, int] = {}  # bytes of the answers that are remembered
        self._asking: set[asyncio.Task[None]] = set()

    def another(self, endpoint: str = "") -> "Desk":
        """Return a way of its own for what outlives a session, a job; or to another shard."""
        own, tls, access_key, secret = self._made_of
        return Desk(endpoint or own, tls, access_key, secret, self._named_by)

    async def call(self, method: Method[Answer], request: Message) -> Answer:
        """Return the answer; what was looked at before is looked at anew afterwards.

        Raises:
            LaterMQError: as `AsyncAdmin.call`.
        """
        try:
            return await self.admin.call(method, request, timeout_s=CALL_TIMEOUT_S)
        finally:
            self.forget()

    async def look(
        self, method: Method[Answer], request: Message, *, age_s: float = LOOK_S
    ) -> Answer:
        """Return the answer, at most `age_s` old. Raises as `call`."""
        key = (method.path, request.SerializeToString(deterministic=True))
        kept = self._looks.get(key)
        now_s = clock.monotonic_s()
        if kept is None or now_s - kept[0] > age_s or _failed(kept[1]):
            kept = (now_s, asyncio.get_running_loop().create_future())
            self._looks[key] = kept
            self._looks.move_to_end(key)
            self._sizes.pop(key, None)
            while len(self._looks) > LOOKS_MAX:
                self._drop(next(iter(self._looks)))
            task = asyncio.ensure_future(self._ask(method, request, key, kept[1]))
            self._asking.add(task)
            task.add_done_callback(partial(self._asked, kept[1]))
        answer: Answer = await asyncio.shield(kept[1])
        return answer

    async def tried(
        self, method: Method[Answer], request: Message, *, age_s: float = LOOK_S
    ) -> tuple[Answer | None, LaterMQError | None]:
        """Look, and return the answer or why there is none: for parts of a page."""
        try:
            return await self.look(method, request, age_s=age_s), None
        except LaterMQError as error:
            return None, error

    def stream(self, method: Method[Answer], request: Message) -> AsyncGenerator[Answer, None]:
        """Yield a stream's elements; their statuses are the caller's to check."""
        return self.admin.stream(method, request)

    def forget(self) -> None:
        """Look at everything anew from now on."""
        self._looks.clear()
        self._sizes.clear()

    def sweep(self) -> None:
        """Forget answers that are too old for anybody."""
        old_s = clock.monotonic_s() - LOOKS_S_MAX
        for key in [key for key, (at_s, _) in self._looks.items() if at_s < old_s]:
            self._drop(key)

    async def close(self) -> None:
        for task in list(self._asking):
            task.cancel()
        with suppress(LaterMQError):
            await self.admin.close()

    async def _ask(
        self, method: Method[Answer], request: Message, key: _Key, answer: asyncio.Future[Answer]
    ) -> None:
        try:
            value = await self.admin.call(method, request, timeout_s=CALL_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001  it is raised to whoever looks
            answer.set_exception(error)
            answer.exception()  # retrieved: nobody may be left who looks
        else:
            answer.set_result(value)
            if key in self._looks and self._looks[key][1] is answer:
                self._bound(key, value.ByteSize())

    def _bound(self, newest: _Key, size: int) -> None:
        """Keep what is remembered within its bytes: the oldest answers go, or one too large."""
        if size > LOOK_BYTES_MAX:
            self._drop(newest)
            return
        self._sizes[newest] = size
        while sum(self._sizes.values()) > LOOKS_BYTES_MAX:
            self._drop(next(key for key in self._looks if key in self._sizes))

    def _drop(self, key: _Key) -> None:
        del self._looks[key]
        self._sizes.pop(key, None)

    def _asked(self, answer: asyncio.Future[Any], task: asyncio.Task[None]) -> None:
        """Forget a call; if it was cancelled, begun or not, tell whoever looks still."""
        self._asking.discard(task)
        if not answer.done():
            answer.set_exception(ClosedError("the session has ended"))
            answer.exception()


def _failed(answer: asyncio.Future[Any]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)
