"""What to do about messages that were to be read and are gone.

`failOnDataLoss=true`: stop, with one line that says which, how many, and what to do.
`failOnDataLoss=false`: the same line as a warning in the log, and go on with what is left.
"""

import logging
from typing import Final

from latermq.spark.errors import DataLossError

log: Final = logging.getLogger("latermq.spark")

_WAY_OUT: Final = "; failOnDataLoss=false goes on with what is left"


class Losses:
    """Takes reports of loss. Returns only when the reader may go on."""

    def __init__(self, *, fail: bool) -> None:
        self.fail = fail

    def retained(
        self, topic: str, queue_id: int, wanted: int, earliest: int, end: int | None = None
    ) -> None:
        count = (earliest if end is None else min(earliest, end)) - wanted
        self._report(
            f"topic {topic} queue {queue_id}: offset {wanted} was to be read, the oldest retained "
            f"is {earliest}: {count} messages are gone"
        )

    def cut_short(self, topic: str, queue_id: int, wanted: int, next_offset: int) -> None:
        self._report(
            f"topic {topic} queue {queue_id}: it ends at offset {next_offset}, {wanted} was "
            f"reached or planned before: the broker's store lost its end or was restored"
        )

    def restored(self, topic: str, queue_id: int, wanted: int) -> None:
        self._report(
            f"topic {topic} queue {queue_id}: other messages stand before offset {wanted} than "
            f"were read or planned: the broker's store was restored, or a copy of it went on"
        )

    def made_anew(self, topic: str, old_epoch: str, new_epoch: str) -> None:
        self._report(
            f"topic {topic} was deleted and made anew (epoch {old_epoch}, now "
            f"{new_epoch or 'none'}): what was unread of the old one is gone"
        )

    def deleted(self, topic: str) -> None:
        self._report(f"topic {topic} does not exist any more: what was unread is gone")

    def _report(self, text: str) -> None:
        if self.fail:
            raise DataLossError(text + _WAY_OUT)
        log.warning("%s", DataLossError(text))
