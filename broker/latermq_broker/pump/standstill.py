"""Notices that the event loop stood still: the process was stopped, or one thing held it for long.

The pump reads the time with all that it does, and once a second when it does nothing. A longer gap
between two looks is time in which nobody could be heard.
"""

import asyncio
import logging
from typing import Final

from latermq_broker.engine.state.hearing import Hearing

log = logging.getLogger("latermq.pump")

STANDSTILL_MS: Final = 1_000  # that the loop is late by: shorter is a busy moment


class Standstill:
    """Made and used in one running loop.

    Args:
        pause_ms: between two looks of a loop that is on time.
    """

    def __init__(self, hearing: Hearing, pause_ms: int) -> None:
        self._hearing = hearing
        self._pause_ms = pause_ms
        self._loop = asyncio.get_running_loop()
        self._looked_s = self._loop.time()

    def look(self, now_ms: int) -> None:
        """Note what was missed since the last look, if the loop is late."""
        loop_s = self._loop.time()
        late_ms = int((loop_s - self._looked_s) * 1_000) - self._pause_ms
        self._looked_s = loop_s
        if late_ms >= STANDSTILL_MS:
            self._hearing.missed(now_ms - late_ms, now_ms)
            log.warning(
                "the broker stood still: clients are given as much time more",
                extra={"ms": late_ms},
            )
