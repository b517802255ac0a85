"""A stream whose elements come one by one: generators that await, which cannot be compiled."""

from collections.abc import AsyncIterator, Callable, Iterable
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
