"""Work around each call in a thread: middleware's, and the end of Django's connections."""

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

InThread: TypeAlias = Callable[[Callable[[], Any]], Any]

# `Middleware.in_thread` of the client that calls, the outermost first; threads inherit the context.
AROUND: Final[ContextVar[Sequence[InThread]]] = ContextVar("latermq_in_thread", default=())


def surrounded(function: Callable[..., Any], given: tuple[object, ...]) -> Any:
    """Call the function in this thread, inside the middleware of its client.

    Where Django is loaded, connections that are broken or too old end before the call, as they do
    before a request: the threads of a pool keep theirs from one message to the next.
    """
    call: Callable[[], Any] = partial(function, *given)
    for each in reversed(AROUND.get()):
        call = partial(each, call)
    if (end := _of_django()) is not None:
        end()
    return call()


async def surrounded_by_django(call: Callable[[], Any]) -> Any:
    """Await a coroutine function's call; Django's ORM has one thread for all of these.

    Connections of that thread end as those of `surrounded` do.
    """
    if (end := _of_django()) is not None:
        from asgiref.sync import sync_to_async  # Django needs it, too

        await sync_to_async(end)()
    return await call()


def _of_django() -> Callable[[], None] | None:
    """Return what ends connections of the calling thread; None: the program has no Django."""
    django = sys.modules.get("django.db")
    if django is None or not sys.modules["django.conf"].settings.configured:
        return None
    end: Callable[[], None] = django.close_old_connections
    return end
