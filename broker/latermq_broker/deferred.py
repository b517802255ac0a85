"""An answer that is not there yet, told to one listener the moment it is.

Most calls wait for one thing only: that the log has what they appended. A future takes a turn of
the loop to say so and a coroutine needs a task to wait for it; `Later` is a value, an error or
neither yet, and a function to call. Whoever settles it runs what was waiting, at once.

    pending ──give──→ value ──→ listener        listen: now, if it is settled already
       └─────fail───→ error ──→ listener
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

log = logging.getLogger("latermq.services")

Value = TypeVar("Value")
Other = TypeVar("Other")


class Later(Generic[Value]):
    """Settled once, by `give`, `release` or `fail`; later attempts change nothing.

    Used on the event loop's thread only. It has one listener; awaiting it is listening.

    Args:
        value: what `release` gives.
    """

    __slots__ = ("_listener", "_rescue", "error", "settled", "value")

    def __init__(self, value: Value | None = None) -> None:
        self.value = value
        self.error: BaseException | None = None
        self.settled = False
        self._listener: Callable[[Later[Value]], None] | None = None
        self._rescue: Callable[[BaseException], Value] | None = None

    def give(self, value: Value) -> None:
        """Settle it with `value`."""
        if not self.settled:
            self.value = value
            self.release()

    def release(self) -> None:
        """Settle it with the value it was made with."""
        if self.settled:
            return
        self.settled = True
        self._rescue = None
        listener, self._listener = self._listener, None  # it may hold what holds this: no circle
        if listener is not None:
            try:
                listener(self)
            except Exception:  # whoever settles it has others to settle
                log.exception("a listener failed")

    def fail(self, error: BaseException) -> None:
        """Settle it with an error, or with what the rescue makes of it."""
        if self.settled:
            return
        if self._rescue is None:
            self.error = error
        else:
            try:
                self.value = self._rescue(error)
            except Exception as worse:  # noqa: BLE001  told to whoever waits
                self.error = worse
        self.release()

    def rescue(self, make: Callable[[BaseException], Value]) -> None:
        """Turn an error, from now on, into the value that `make` returns or the error it raises."""
        self._rescue = make

    def result(self) -> Value:
        """Return the value of a settled one, or raise its error."""
        if self.error is not None:
            raise self.error
        return cast(Value, self.value)

    def listen(self, listener: "Callable[[Later[Value]], None]") -> None:
        """Call `listener` with this when it is settled; now, if it is."""
        assert self._listener is None, "one listener"
        if self.settled:
            listener(self)
        else:
            self._listener = listener

    def mapped(self, make: "Callable[[Value], Other]") -> "Later[Other]":
        """Return a Later of what `make` makes of the value; an error passes through."""
        made: Later[Other] = Later()
        self.listen(partial(_give_mapped, made, make))
        return made

    def then(self, step: "Callable[[Value], Later[Other]]") -> "Later[Other]":
        """Return what becomes of the one that `step` begins with the value; errors pass through."""
        made: Later[Other] = Later()
        self.listen(partial(_begin, made, step))
        return made

    def __await__(self) -> Generator[Any, None, Value]:
        if not self.settled:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def woken(_: object) -> None:
                if not future.done():  # who awaited it may be gone
                    future.set_result(None)

            self.listen(woken)
            yield from future
        return self.result()


# Functions of the module, not closures: what a closure keeps lives in a cell, and compiled in an
# object that the closure is part of, so that answers would wait for the collector of circles.


def _give_mapped(made: Later[Other], make: Callable[[Value], Other], before: Later[Value]) -> None:
    try:
        value = make(before.result())
    except BaseException as error:  # noqa: BLE001  told to whoever waits for `made`
        made.fail(error)
    else:
        made.give(value)


def _begin(made: Later[Other], step: Callable[[Value], Later[Other]], before: Later[Value]) -> None:
    try:
        after = step(before.result())
    except BaseException as error:  # noqa: BLE001  told to whoever waits for `made`
        made.fail(error)
    else:
        after.listen(partial(_pass_on, made))


def _pass_on(made: Later[Other], after: Later[Other]) -> None:
    if after.error is not None:
        made.fail(after.error)
    else:
        made.give(cast(Other, after.value))
