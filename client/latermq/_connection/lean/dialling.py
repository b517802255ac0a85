"""Connecting to a name: each of its addresses gets its turn, and a slow one keeps no other waiting.

The name is looked up at each dial. Beside an address that has not answered after STAGGER_S the next
one is tried (RFC 8305); the first connection is taken, the others are given up.
"""

import asyncio
import socket
from typing import Any, Final

STAGGER_S: Final = 0.25


async def connected(host: str, port: int, turn: int) -> socket.socket:
    """Return a connected socket.

    Args:
        turn: which of the name's addresses is tried first, counted round.
    Raises:
        OSError: the name is not known, or none of its addresses answers.
    """
    loop = asyncio.get_running_loop()
    try:  # an address needs no thread to be looked up in
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = turn % len(addresses) if addresses else 0
    waiting = _interleaved(addresses[first:] + addresses[:first])
    attempts: set[asyncio.Task[socket.socket]] = set()
    failure = OSError(f"{host} has no address")
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(loop.create_task(_attempt(*waiting.pop(0))))
            limit = STAGGER_S if waiting else None
            done, _ = await asyncio.wait(
                attempts, timeout=limit, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                attempts.discard(attempt)
                error = attempt.exception()
                if error is None:
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                failure = error
        raise failure
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_closed)
            attempt.cancel()


def _interleaved(addresses: list[Any]) -> list[tuple[int, Any]]:
    """Return addresses of the families in turns, the first one's family first."""
    families: dict[int, list[tuple[int, Any]]] = {}
    for family, _, _, _, address in addresses:
        families.setdefault(family, []).append((family, address))
    queues, ordered = list(families.values()), list[tuple[int, Any]]()
    while any(queues):
        ordered += [queue.pop(0) for queue in queues if queue]
    return ordered


async def _attempt(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


def _closed(attempt: "asyncio.Task[socket.socket]") -> None:
    """Close the connection of an attempt that another one was faster than."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
