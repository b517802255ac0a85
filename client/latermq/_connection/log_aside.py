"""What a loop in a thread of its own logs, handed to the program's handlers in another thread.

The program decides where log lines go. A handler that blocks, as one that writes to a pipe that
nobody reads, would stop the loop, and with it every call and every renewal of a lease.

    loop's thread ──record──► at most RECORDS_MAX wait ──► a thread ──► the program's handlers
                    waits WAIT_S for its line, unless the one before took longer

So lines come in their order, and before the call that they are of returns, while handlers are
quick.
"""

import logging
import threading
import traceback
from contextlib import suppress
from queue import Full, Queue
from typing import Final

WAIT_S: Final = 0.1
RECORDS_MAX: Final = 1_000  # that wait; what comes beyond is left out, counted and told
LAST_S: Final = 1.0  # for the last lines of a loop
LOGGERS: Final = ("latermq.client", "latermq.kafka", "latermq.worker", "asyncio")


class LogAside(logging.Filter):
    """Takes what one thread logs, from `begin` to `end`."""

    def __init__(self) -> None:
        super().__init__()
        self._records: Queue[tuple[logging.LogRecord, threading.Event] | None] = Queue(RECORDS_MAX)
        self._source: threading.Thread | None = None
        self._sink: threading.Thread | None = None
        self._ended = False
        self._quick = True  # the handlers took the last line in time
        self._left_out = 0

    def begin(self, source: threading.Thread) -> None:
        """Take what the thread `source` logs from now on."""
        self._source = source
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def end(self) -> None:
        """Take nothing more; wait for the lines so far, for LAST_S at most."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
        self._ended = True
        if self._sink is not None:
            with suppress(Full):
                self._records.put(None, timeout=LAST_S)
            self._sink.join(LAST_S)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record goes on as ever: not one of the loop's thread."""
        if threading.current_thread() is not self._source:
            return True
        taken = threading.Event()
        try:
            self._records.put_nowait((record, taken))
        except Full:
            self._left_out += 1
            return False
        if self._sink is None:
            self._sink = threading.Thread(target=self._hand_on, name="latermq log", daemon=True)
            self._sink.start()
        if self._quick:
            self._quick = taken.wait(WAIT_S)
        return False

    def _hand_on(self) -> None:
        while not (self._ended and self._records.empty()):
            if self._records.empty():
                self._quick = True
            item = self._records.get()
            if item is None:
                return
            record, taken = item
            try:
                self._handle(record)
            except Exception:  # noqa: BLE001 - a handler's own, whatever it is
                if logging.raiseExceptions:
                    traceback.print_exc()
            taken.set()

    def _handle(self, record: logging.LogRecord) -> None:
        logger = logging.getLogger(record.name)
        left_out, self._left_out = self._left_out, 0
        logger.callHandlers(record)
        if left_out:
            logger.callHandlers(
                logger.makeRecord(
                    record.name, logging.WARNING, __file__, 0,
                    "%d log lines left out: a log handler took too long", (left_out,), None,
                )
            )  # fmt: skip
