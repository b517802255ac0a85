"""A stream whose elements come one by one: generators that await, which cannot be compiled."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

Element = TypeVar("Element")


async def encoded(
    elements: AsyncIterator[Element],
    encode: Callable[[Element], bytes],
    refused: Callable[[BaseException], Iterable[bytes]],
) -> AsyncIterator[bytes]:
    """Encode each element; an error ends them with what `refused` makes of it."""
    try:
        async for element in elements:
            yield encode(element)
    except Exception as error:  # noqa: BLE001  `refused` logs what is not the caller's
        for last in refused(error):
            yield last


async def while_allowed(
    elements: AsyncIterator[bytes], refusal: Callable[[], bytes | None]
) -> AsyncIterator[bytes]:
    """Hand on elements for as long as there is no refusal, which then is the last."""
    try:
        async for element in elements:
            refused = refusal()
            if refused is not None:
                yield refused
                return
            yield element
    finally:
        close = getattr(elements, "aclose", None)
        if close is not None:
            await close()


async def then_closed(
    send: Callable[[], Awaitable[None]], elements: AsyncIterator[Element]
) -> None:
    """Run `send`, which reads the elements, and close them however it ends.

    Not compiled: mypyc's coroutines leave an exception behind that passes an `await` in `finally`,
    and each later one holds it as its context.
    """
    try:
        await send()
    finally:
        close = getattr(elements, "aclose", None)
        if close is not None:
            await close()
