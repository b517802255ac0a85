"""Standard output: its failures are told from others, and a terminal obeys our own words only.

A full disk or a reader that has gone is the caller's affair; the same error of a socket or of the
log is a bug of ours, or a failure with words of its own.

Names, bodies and reasons come from strangers, through a broker that may be one, too. So all text
that leaves is printable but for line ends and tabs, whoever forgot to see to it. What a terminal is
to obey, colours and the like, is marked by `obeyed` with a number that only this process knows.
"""

import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, Final, NoReturn, TextIO, cast

from latermq_cli.terminal.failures import CommandError
from latermq_text.printable import escaped

_MARK: Final = f"\x1b{secrets.token_hex(8)}:"
_MARKED: Final = re.compile(re.escape(_MARK) + "([0-9a-f]*);")
_LAYOUT: Final = re.compile(r"([\n\t])")  # what stays of what is not printable
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


def obeyed(sequence: str) -> str:
    """Mark a sequence of ours that the terminal is to obey."""
    return f"{_MARK}{sequence.encode().hex()};"


def unmarked(text: str) -> str:
    """Return what of a text is seen: without what `obeyed` has marked."""
    return _MARKED.sub("", text)


def let_through() -> None:
    """Have standard output take everything as it is from now on: a user's own program writes."""
    if isinstance(sys.stdout, Output):
        sys.stdout.literal = True


def _printable(text: str) -> str:
    """Escape what a terminal would obey, but for line ends, tabs and what is marked."""
    if _MARK not in text:
        return "".join(
            part if part in ("\n", "\t") else escaped(part) for part in _LAYOUT.split(text)
        )
    parts = _MARKED.split(text)  # text, marked, text, …
    return "".join(
        bytes.fromhex(part).decode() if index % 2 else _printable(part)
        for index, part in enumerate(parts)
    )


class OutputError(CommandError):
    """Standard output cannot be written; exit code 1."""


class Output:
    """A stream, of text or bytes, that ends the command when it cannot be written."""

    def __init__(self, stream: Any, *, literal: bool = False) -> None:
        self._stream = stream
        self.literal = literal  # what is written is not ours

    @property
    def buffer(self) -> "Output":
        """Wrap the stream's bytes: click writes there where the environment says ASCII."""
        return Output(self._stream.buffer, literal=self.literal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> Any:
        """Raises OutputError; SystemExit(0): nobody reads on."""
        if self.literal:
            shown = data
        elif isinstance(data, str):
            shown = _printable(data)
        else:
            shown = _CONTROL.sub(lambda control: b"\\u%04x" % control[0][0], bytes(data))
        with _failures(self._stream):
            self._stream.write(shown)
        return len(data)

    def flush(self) -> None:
        """Raises OutputError; SystemExit(0): nobody reads on."""
        with _failures(self._stream):
            self._stream.flush()


@contextmanager
def guarded_output() -> Iterator[None]:
    """Make `sys.stdout` an Output while this lasts, if there is one at all."""
    stream = sys.stdout
    if stream is None:
        yield
        return
    try:
        with redirect_stdout(cast(TextIO, Output(stream))):
            yield
    except OutputError:
        _drop_the_rest(stream)  # not sooner: click tries a write of nothing first, and goes on
        raise


@contextmanager
def _failures(stream: Any) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        _reader_gone(stream)
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror or error}") from error


def _reader_gone(stream: Any) -> NoReturn:
    """End with 0, as under `latermq … | head`: whoever read our output has seen enough."""
    _drop_the_rest(stream)
    sys.exit(0)


def _drop_the_rest(stream: Any) -> None:
    """Drop what waits in the buffer: it would fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
