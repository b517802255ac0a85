"""What the broker writes on stderr: lines of text for people, or one JSON object per line.

The message of a record is constant text; what varies is in `extra=` fields. Rooms log as
`latermq.<room>`; libraries are heard from WARNING on. Never message bodies, never whole handles.
What is not printable is escaped, in both forms: fields hold what strangers sent.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from latermq_broker.config.config import LogConfig
from latermq_text.json_lines import json_line, text_of
from latermq_text.log_writer import BesideHandler, LogWriter
from latermq_text.printable import escaped

OWN_LOGGER: Final = "latermq"
_STANDARD_FIELDS: Final = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", (), None)) | {"message": "", "asctime": ""}
)


def set_up(config: LogConfig, stream: TextIO | None = None) -> None:
    """Send every record of this process to `stream` (stderr); replaces an earlier set-up.

    stderr is written to beside the loop: a reader that stands still stops nothing.
    """
    handler = logging.StreamHandler(stream) if stream is not None else _beside()
    handler.setFormatter(JsonFormatter() if config.json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN_LOGGER).setLevel(config.level.upper())
    logging.raiseExceptions = False  # a log that cannot be written must not add to it


def _beside() -> logging.Handler:
    """Make a handler for stderr; the lines that wait for an earlier one's writer stay its."""
    earlier = _writer()
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # none, or one of a test
        return logging.StreamHandler(sys.stderr)
    if earlier is not None and earlier.descriptor == descriptor:
        return BesideHandler(earlier)
    return BesideHandler(LogWriter(descriptor))


def _writer() -> LogWriter | None:
    handlers = [each for each in logging.getLogger().handlers if isinstance(each, BesideHandler)]
    return handlers[0].writer if handlers else None


def lines_left_out() -> int:
    """Count the lines that found no room since the start, as nobody took those before them."""
    writer = _writer()
    return 0 if writer is None else writer.left_out


def flush() -> None:
    """Wait for the lines so far to be written, for a second at most."""
    writer = _writer()
    if writer is not None:
        writer.flush()


class TextFormatter(logging.Formatter):
    """`2026-01-31T08:00:00.123Z INFO latermq.runtime: ready address=127.0.0.1:8081`"""

    def format(self, record: logging.LogRecord) -> str:
        message = escaped(record.getMessage())
        parts = [f"{_instant(record)} {record.levelname} {record.name}: {message}"]
        parts += [f"{name}={_shown(value)}" for name, value in _extra(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            traceback = self.formatException(record.exc_info).split("\n")
            # Indented: an error's own text may hold what looks like a line of this log.
            line = "\n  ".join([line, *map(escaped, traceback)])
        return line


class JsonFormatter(logging.Formatter):
    """One object: time, level, logger, message, the extra fields, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text_of(record, logging.LogRecord.getMessage),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return escaped(json_line(fields, _extra(record)))


def _instant(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _shown(value: object) -> str:
    """Write a value on one line, and in quotes when it would read as several fields."""
    text = str(value)
    if not text or not text.isprintable() or any(character in text for character in ' "='):
        return escaped(json.dumps(text, ensure_ascii=False))
    return text
