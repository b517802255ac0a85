"""One stream: which halves are open, its windows, and the output that waits for them."""

from collections import deque
from typing import Any, Final

MUTED_MAX: Final = 2_048  # streams


class Stream:
    """Made by the client's HEADERS, forgotten when both halves are closed.

    input_open, output_open: (yes, yes) open · (no, yes) half-closed (remote) ·
    (yes, no) half-closed (local), left at once with RST_STREAM(NO_ERROR) · (no, no) closed.
    `call` belongs to the layer above.
    """

    __slots__ = (
        "begun_ms", "call", "content_left", "credit", "empty_data", "empty_data_run", "id",
        "input_open", "marked", "output_open", "queue", "queued_bytes", "ready", "room", "sent",
        "trailers", "wants_room", "window",
    )  # fmt: skip

    def __init__(self, stream_id: int, content_length: int, window: int, room: int) -> None:
        self.id = stream_id
        self.begun_ms = 0
        self.call: Any = None
        self.input_open = True
        self.output_open = True
        # in
        self.room = room  # what the peer may still send
        self.credit = 0  # consumed, not yet given back
        self.content_left = content_length
        self.empty_data = 0
        self.empty_data_run = 0
        # out
        self.window = window  # may be negative
        self.queue: deque[bytes | memoryview] | None = None
        self.queued_bytes = 0
        self.trailers: bytes | None = None  # a block that ends the stream after the queue
        self.ready = False  # has its turn in the round
        self.wants_room = False
        self.sent = 0
        self.marked = -1  # `sent` at the last look for stalled streams


class Muted:
    """Ids of the streams that were reset or refused last; what still comes for them is dropped."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def add(self, stream_id: int) -> None:
        ids = self._ids
        ids[stream_id] = None
        if len(ids) > MUTED_MAX:
            del ids[next(iter(ids))]

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._ids
