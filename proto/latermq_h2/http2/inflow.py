"""What comes in: the connection's window, and giving back what was taken."""

from typing import Final

from latermq_h2.http2 import frames
from latermq_h2.http2.frames import ConnectionFault, ErrorCode
from latermq_h2.http2.limits import Limits
from latermq_h2.http2.outbound import Outbound
from latermq_h2.http2.stream import Stream

CREDIT_SHARE: Final = 4  # the connection's window is given back by quarters


class Inflow:
    """Gives back a connection's windows: its own on receipt, a stream's on consumption."""

    __slots__ = ("_credit", "_credit_due", "_limits", "_outbound", "_room", "_stream_due")

    def __init__(self, limits: Limits, outbound: Outbound) -> None:
        self._limits = limits
        self._outbound = outbound
        self._room = max(limits.connection_window_bytes, frames.WINDOW_DEFAULT)
        self._credit = 0
        self._credit_due = self._room // CREDIT_SHARE
        self._stream_due = limits.stream_window_bytes // 2

    def take(self, bytes_count: int) -> None:
        """Count a DATA frame of so many bytes. Raises ConnectionFault: more than the window."""
        self._room -= bytes_count
        if self._room < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more than the window allows")
        self._credit += bytes_count
        if self._credit >= self._credit_due:
            self._outbound.put(frames.window_update(0, self._credit))
            self._room += self._credit
            self._credit = 0

    def count_empty(self, stream: Stream) -> None:
        """Count a DATA frame with nothing in it. Raises ConnectionFault: there are too many."""
        stream.empty_data += 1
        stream.empty_data_run += 1
        if (
            stream.empty_data > self._limits.empty_data_max
            or stream.empty_data_run > self._limits.empty_data_run_max
        ):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many empty DATA frames")

    def consume(self, stream: Stream, bytes_count: int) -> None:
        """Count bytes of a stream's body as taken by whom they are for; widen its window."""
        if not stream.input_open:
            return
        stream.credit += bytes_count
        if stream.credit >= self._stream_due:
            self._outbound.put(frames.window_update(stream.id, stream.credit))
            stream.room += stream.credit
            stream.credit = 0
