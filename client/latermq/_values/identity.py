"""Who this client is: its version, client ids and message ids."""

import itertools
import os
import secrets
import socket
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Final

__version__: Final = "0.1.0"
LANGUAGE: Final = "PYTHON"

#  0    1      7     9        13        17   big-endian, printed as 34 upper-case hex digits
#  | 01 | MAC  | pid | seconds | counter |   seconds since 2021-01-01 UTC at the process' first id
ID_VERSION: Final = b"\x01"
ID_EPOCH_S: Final = int(datetime(2021, 1, 1, tzinfo=UTC).timestamp())
MAC_BYTES: Final = 6
COUNTER_MASK: Final = 0xFFFF_FFFF


class MessageIds:
    """Message ids of RocketMQ's version 1; safe to share between threads."""

    def __init__(self, mac: int, pid: int, now_s: int, first: int = 0) -> None:
        seconds = (now_s - ID_EPOCH_S) & COUNTER_MASK
        self._prefix = (
            ID_VERSION
            + mac.to_bytes(MAC_BYTES, "big")
            + (pid & 0xFFFF).to_bytes(2, "big")
            + seconds.to_bytes(4, "big")
        )
        self._counter = itertools.count(first)

    def next(self) -> str:
        count = next(self._counter) & COUNTER_MASK
        return (self._prefix + count.to_bytes(4, "big")).hex().upper()


@cache
def _ids_of_process(pid: int) -> MessageIds:
    # Commands in containers share host and process id, and two may begin in one second.
    return MessageIds(uuid.getnode(), pid, int(time.time()), secrets.randbits(24))


def message_ids() -> MessageIds:
    """Return this process' generator: two connections must not count from the same start.

    A forked child has another pid, hence a generator of its own.
    """
    return _ids_of_process(os.getpid())


def new_client_id() -> str:
    """Return an id no other client has, in the usual shape host@pid@index@suffix."""
    return f"{host_name()}@{os.getpid()}@0@{secrets.token_hex(6)}"


@cache
def host_name() -> str:
    return socket.gethostname()


def request_ids() -> Iterator[str]:
    """Return ids that no other call has, 32 hex digits each, for one who makes calls."""
    return map("{:032x}".format, itertools.count(secrets.randbits(127)))
