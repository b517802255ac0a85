"""Who writes to a bucket: a mark in it, because object stores have no locks.

    running/<milliseconds, 13 digits>-<16 hex digits>    who it is; written again while it works

Who comes writes a mark and lists them then: where there is no other, it may write. Of two that
came at once the one whose mark sorts behind gives way. So at most one works, if only the store
lists what was written before; nothing is asked of it besides, and no clock is read but the store's.

A mark that was not renewed for `STALE_S` is of somebody who died, and is deleted. Somebody who was
only held up for so long finds that out before the next write, and ends.
"""

import os
import secrets
import socket
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

from latermq_cli import clock
from latermq_cli.terminal.failures import CommandError, RefusedError

RUNNING: Final = "running"
STALE_S: Final = 900
HELD_UP_S: Final = STALE_S // 2
RENEW_MS: Final = 10_000
MARK_BYTES_MAX: Final = 1_024  # of another's mark
GIVE_WAY_S: Final = 10.0  # in it, one that sorts behind has seen this one, and has gone
LOOK_S: Final = 0.2


class MarkedShelf(Protocol):
    """What a mark needs of a shelf."""

    place: str

    def names(self, folder: str) -> dict[str, int]: ...

    def read(self, folder: str, name: str, bytes_max: int) -> bytes: ...

    def write(self, folder: str, name: str, data: bytes) -> None: ...

    def written_at(self, folder: str, name: str) -> datetime: ...

    def delete(self, folder: str, name: str) -> None: ...


class Mark:
    """To be removed, also where `wait` has raised."""

    def __init__(self, shelf: MarkedShelf) -> None:
        self._shelf = shelf
        self._name = f"{clock.now_ms():013d}-{secrets.token_hex(8)}"
        self._told_ms = 0
        self._told_at = datetime.min

    def wait(self) -> None:
        """Write the mark, and return when nobody else may write.

        Raises:
            CommandError: it cannot be written.
            RefusedError: somebody else writes.
        """
        self._told_at = self._tell()
        until_s = clock.monotonic_s() + GIVE_WAY_S
        while others := self._others():
            if others[0] < self._name or clock.monotonic_s() > until_s:
                raise RefusedError(
                    f"another backup to {self._shelf.place} is running: {self._who(others[0])}; "
                    f"should it be dead, {RUNNING}/{others[0]} counts for {STALE_S // 60} minutes"
                )
            clock.sleep(LOOK_S)

    def renew(self) -> None:
        """Say every few seconds that this one lives.

        Raises:
            CommandError: it said nothing for so long that another may have begun.
        """
        if abs(clock.now_ms() - self._told_ms) < RENEW_MS:
            return
        before, self._told_at = self._told_at, self._tell()
        if (self._told_at - before).total_seconds() > HELD_UP_S:
            raise CommandError(
                f"this was held up for longer than {HELD_UP_S} s, so that another backup to "
                f"{self._shelf.place} may have begun"
            )

    def remove(self) -> None:
        """Take it away; where that fails it counts no longer than that of one who was killed."""
        with suppress(CommandError):
            self._shelf.delete(RUNNING, self._name)

    def _tell(self) -> datetime:
        """Write the mark; when that was."""
        self._told_ms = clock.now_ms()
        who = f"process {os.getpid()} on {socket.gethostname()}"
        self._shelf.write(RUNNING, self._name, who.encode())
        return self._shelf.written_at(RUNNING, self._name)

    def _others(self) -> list[str]:
        """List the marks of others that live, in order; delete those of the dead."""
        others: list[str] = []
        for name in sorted(self._shelf.names(RUNNING).keys() - {self._name}):
            try:
                silent = self._told_at - self._shelf.written_at(RUNNING, name)
            except FileNotFoundError:
                continue
            if silent.total_seconds() > STALE_S:
                self._shelf.delete(RUNNING, name)
            else:
                others.append(name)
        return others

    def _who(self, name: str) -> str:
        try:
            return self._shelf.read(RUNNING, name, MARK_BYTES_MAX).decode(errors="replace")
        except FileNotFoundError:
            return "it ended just now"
