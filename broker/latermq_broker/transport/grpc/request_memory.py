"""What arriving requests hold in memory: one account for all connections of a server.

A call is counted from the read that leaves its request incomplete to its answer, with the bytes
that are held for it: inflated, with what a buffer grows ahead and what the objects take. A message
that is whole, but whose END_STREAM did not come, is held like any other. Short requests that come
whole in one read are not counted.

A call that *waits* for the rest of its request has a deadline, and goes first when memory is short:
the one that has waited longest makes room for the one that comes, so requests that are stuck never
keep out those that are not. What a handler works on is never taken away.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from latermq_broker.services.call.handler import CallAborted
from latermq_broker.transport.grpc.call import LeanCall
from latermq_broker.transport.grpc.counts import REFUSED, Counts
from latermq_h2.grpc_code import GrpcCode

SHORT_BYTES: Final = 4_096  # requests up to here are not counted while a handler has them
INPUT_SHARE: Final = 4  # frames that are not whole may always have a quarter of everything


class RequestMemory:
    """Counts what arriving requests hold in memory at one server.

    Args:
        bytes_max: of all connections.
        connection_bytes_max: of one.
        request_ms_max: from the read that left a request incomplete to the one that completes it.
    """

    def __init__(
        self,
        bytes_max: int,
        connection_bytes_max: int,
        request_ms_max: int,
        now_ms: Callable[[], int],
        counts: Counts,
    ) -> None:
        self.held_bytes = 0
        self.peak_bytes = 0  # until somebody looks
        self._input_bytes = 0
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._request_ms_max = request_ms_max
        self._now_ms = now_ms
        self._counts = counts
        self._waiting: OrderedDict[LeanCall, int] = OrderedDict()  # since when; longest first
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Count the calls that wait for the rest of their request."""
        return len(self._waiting)

    def waits(self, call: LeanCall, bytes_count: int) -> None:
        """Count the bytes held for a call whose request is not whole.

        Raises:
            CallAborted: RESOURCE_EXHAUSTED, more than a connection, or all of them, may hold.
        """
        if call not in self._waiting:
            self._waiting[call] = self._now_ms()
            if self._timer is None:
                self._set_timer(self._request_ms_max)
        self.holds(call, bytes_count)

    def stops_waiting(self, call: LeanCall) -> None:
        """End the deadline of a call: its request, or a message of its stream, is whole."""
        self._waiting.pop(call, None)

    def holds(self, call: LeanCall, bytes_count: int) -> None:
        """Count the bytes held for a call. Raises CallAborted as `waits` does."""
        self._set(call, bytes_count)
        origin = call.origin
        if origin.held_bytes > self._connection_bytes_max:
            self._refuse(
                f"the requests of this connection hold {origin.held_bytes} bytes, at most "
                f"{self._connection_bytes_max} may be held (http2.assembly_bytes_max)"
            )
        if self.held_bytes > self._bytes_max:
            self._make_room(call)

    def add_input(self, more_bytes: int) -> bool:
        """Count what came of frames that are not whole; False: it is too much of everything."""
        self.held_bytes += more_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        self._input_bytes += more_bytes
        if more_bytes <= 0 or self.held_bytes <= self._bytes_max:
            return True
        try:
            self._make_room(None)
        except CallAborted:
            return self._input_bytes <= self._bytes_max // INPUT_SHARE
        return True

    def _make_room(self, comer: LeanCall | None) -> None:
        """Give up what waits longest until everything fits.

        Raises:
            CallAborted: nothing waits longer than `comer` does, or nothing at all.
        """
        while self.held_bytes > self._bytes_max:
            text = (
                f"the requests of all connections hold {self.held_bytes} bytes, at most "
                f"{self._bytes_max} may be held (http2.requests_bytes_max)"
            )
            oldest = next(iter(self._waiting), None)
            if oldest is None or oldest is comer:
                self._refuse(text)
            else:
                self._counts.add(REFUSED, "made room for other requests")
                self._give_up(oldest, GrpcCode.RESOURCE_EXHAUSTED, text)

    def forget(self, call: LeanCall) -> None:
        """Hold nothing for a call any more: its answer is out, or it ended."""
        if self._waiting:
            self._waiting.pop(call, None)
        if call.held_bytes:
            self._set(call, 0)

    def expire(self) -> None:
        """End the calls that have waited for too long."""
        self._timer = None
        latest_ms = self._now_ms() - self._request_ms_max
        while self._waiting:
            call, since_ms = next(iter(self._waiting.items()))
            if since_ms > latest_ms:
                self._set_timer(since_ms - latest_ms)
                return
            text = f"the request was not whole after {self._request_ms_max} ms"
            self._give_up(call, GrpcCode.DEADLINE_EXCEEDED, f"{text} (http2.request_ms_max)")

    def _refuse(self, text: str) -> None:
        self._counts.add(REFUSED, "too much is sent at once")
        raise CallAborted(GrpcCode.RESOURCE_EXHAUSTED, text)

    def _give_up(self, call: LeanCall, code: GrpcCode, text: str) -> None:
        self.forget(call)
        call.origin.give_up(call, code, text)

    def _set(self, call: LeanCall, bytes_count: int) -> None:
        more = bytes_count - call.held_bytes
        call.held_bytes = bytes_count
        call.origin.held_bytes += more
        self.held_bytes += more
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes

    def _set_timer(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_ms / 1_000, self.expire)
