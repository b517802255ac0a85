"""Calls that last: what answers them runs in turns of the background, its answers' bytes included.

A stream rests between two elements: while its client does not read it takes no place from others.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from google.protobuf.message import Message

from latermq_broker.background.jobs import Background
from latermq_broker.services.call.answers import Caller
from latermq_broker.services.call.handler import Call

Answer: TypeAlias = Callable[[Any, Caller], Any]


def lasting(
    background: Background, kind: str, answer: Answer, reply_bytes: int
) -> Callable[[Any, Caller], Awaitable[bytes]]:
    """Make an answer function of a unary call answer in turns.

    The function made raises TooManyRequestsError, besides what `answer` raises.

    Args:
        reply_bytes: about what is gathered for an answer: reserved when the call may take turns.
    """

    async def answered(request: Any, caller: Caller) -> bytes:
        async with background.job(_user(caller.call), kind, is_call=True) as caller.job:
            if reply_bytes:
                caller.call.reply_room()
                caller.call.reserve_reply(reply_bytes)
            result = answer(request, caller)
            return _bytes_of(await result if isawaitable(result) else result)

    return answered


def lasting_stream(
    background: Background, kind: str, answer: Answer
) -> Callable[[Any, Caller], AsyncIterator[bytes]]:
    """Make an answer function of a server stream yield its elements in turns.

    The function made raises TooManyRequestsError, besides what `answer` raises.
    """

    async def answered(request: Any, caller: Caller) -> AsyncIterator[bytes]:
        async with background.job(_user(caller.call), kind, is_call=True) as job:
            caller.job = job
            elements = answer(request, caller)
            if not isinstance(elements, AsyncIterator):
                listed = await elements if isawaitable(elements) else elements
                for element in cast(Sequence[Any], listed):
                    yield _bytes_of(element)
                    await job.turn()
                return
            try:
                async for element in elements:
                    data = _bytes_of(element)
                    job.rest()
                    yield data
                    await job.turn()
            finally:
                close = getattr(elements, "aclose", None)
                if close is not None:
                    await close()

    return answered


def _user(call: Call) -> str:
    """Name who is charged: who signed, or else the address; never the broker's own work."""
    if call.user is not None:
        return f"user {call.user.access_key}"
    return f"at {call.peer.rpartition(':')[0]}"


def _bytes_of(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
