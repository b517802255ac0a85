"""Log lines written beside the loop: what collects them may stand still, and nothing waits for it.

    logger ──format──► lines waiting, at most so many bytes ──► a thread ──write──► stderr
                        └── no room: left out, counted, and told by a line when there is room again

For processes with an event loop: the broker, the shards' supervisor, the console, a worker. Lines
keep their order. `flush` waits for the thread, and no longer than FLUSH_S: a process that ends says
its last words to whoever reads, and ends in any case.
"""

import logging
import os
import threading
from collections import deque
from typing import Final

BYTES_MAX: Final = 1 << 20  # of lines that wait to be written
FLUSH_S: Final = 1.0  # for the last lines of a process
AGAIN_S: Final = 0.05  # after a descriptor that does not block took nothing


class LogWriter:
    """Writes lines to a descriptor in a thread, which begins with the first line.

    Args:
        descriptor: stays open, and the caller's.
        bytes_max: of lines that wait; what comes beyond is left out.
    """

    def __init__(self, descriptor: int, bytes_max: int = BYTES_MAX) -> None:
        self.descriptor = descriptor
        self.left_out = 0  # lines, since the start
        self._bytes_max = bytes_max
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._writing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._untold = 0  # of those left out
        self._pause = threading.Event()  # never set

    def write(self, line: bytes) -> bool:
        """Have a line written; False: there was no room, and it is left out. Never waits."""
        with self._changed:
            if self._waiting_bytes + len(line) > self._bytes_max:
                self.left_out += 1
                self._untold += 1
                return False
            self._lines.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def take_untold(self) -> int:
        """Return how many lines were left out since it was asked last, once there is room."""
        with self._changed:
            if not self._untold or self._waiting_bytes > self._bytes_max // 2:
                return 0
            untold, self._untold = self._untold, 0
            return untold

    def flush(self, wait_s: float = FLUSH_S) -> bool:
        """Wait until all lines are written, for a bounded time; tell whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._writing), wait_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                line = self._lines.popleft()
                self._writing = True
            self._put(line)
            with self._changed:
                self._waiting_bytes -= len(line)
                self._writing = False
                self._changed.notify_all()

    def _put(self, line: bytes) -> None:
        """Write a line, however long that takes; one that cannot be is counted as left out."""
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
            except BlockingIOError:
                self._pause.wait(AGAIN_S)
            except OSError:  # who read it is gone
                with self._changed:
                    self.left_out += 1
                return


class BesideHandler(logging.Handler):
    """Hands formatted records to a LogWriter, and tells of lines that were left out."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Format a record and have it written, behind a line about those that were left out."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001  as every handler of logging: a log must not raise
            self.handleError(record)
            return
        untold = self.writer.take_untold()
        if untold:
            self.writer.write(self._line(_left_out(untold)))
        self.writer.write(line)

    def flush(self) -> None:
        self.writer.flush()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")


def _left_out(count: int) -> logging.LogRecord:
    words = "log lines were left out: nobody took them"
    record = logging.LogRecord("latermq.log", logging.WARNING, "", 0, words, (), None)
    record.count = count
    return record
