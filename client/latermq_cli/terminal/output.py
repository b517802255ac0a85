"""Standard output, whose failures are told from those of everything else that is written.

A full disk or a reader that has gone is the caller's affair; the same error of a socket or of the
log is a bug of ours, or a failure with words of its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TextIO, cast

from latermq_cli.terminal.failures import CommandError


class OutputError(CommandError):
    """Standard output cannot be written; exit code 1."""


class Output:
    """A stream, of text or bytes, that ends the command when it cannot be written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def buffer(self) -> "Output":
        """Wrap the stream's bytes: click writes there where the environment says ASCII."""
        return Output(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> Any:
        """Raises OutputError; SystemExit(0): nobody reads on."""
        with _failures(self._stream):
            return self._stream.write(data)

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
