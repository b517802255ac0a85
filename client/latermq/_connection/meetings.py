"""Getting known to all brokers of a route: those that are there are enough."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from latermq._connection.outages import Outages
from latermq._connection.tasks import Tasks
from latermq._values.endpoints import Endpoints
from latermq.errors import UnavailableError

OTHERS_S_MAX: Final = 1.0  # for the other brokers of a route, once one has answered


async def meet_all(
    meet: Callable[[Endpoints], Coroutine[Any, Any, None]],
    brokers: set[Endpoints],
    tasks: Tasks,
    outages: Outages,
) -> None:
    """Return when the brokers have answered our settings; of several, those that are there.

    Args:
        meet: returns when one has.
    Raises:
        UnavailableError: none has.
        RequestError: one has refused them.
    """
    if len(brokers) == 1:
        await meet(next(iter(brokers)))
        return
    meetings = {
        tasks.start(meet(each), f"latermq meets {each}", awaited=True): each for each in brokers
    }
    loop = asyncio.get_running_loop()
    pending, until, failure = set(meetings), 0.0, UnavailableError("no broker answers")
    try:
        while pending:
            left = max(until - loop.time(), 0) if until else None
            done, pending = await asyncio.wait(
                pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for meeting in done:
                error = meeting.exception()
                if error is None:
                    until = until or loop.time() + OTHERS_S_MAX
                elif isinstance(error, UnavailableError):
                    failure = error
                    outages.lost(meetings[meeting], error)
                else:
                    raise error
    finally:
        for meeting in pending:
            meeting.cancel()
            outages.lost(meetings[meeting], failure)
    if not until:
        raise failure
