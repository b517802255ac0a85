"""How a command ends when it cannot do what was asked: one line on stderr and an exit code.

3: what was named is not there. 2: the caller must ask differently (bad input, a request the broker
refused). 1: the broker cannot be reached, or it failed. Never a traceback; `LATERMQ_TRACEBACK=1`
shows one for a bug report. With `--json` the line is an object.
"""

import json
from typing import Final

import click

from latermq_text.printable import escaped

# Status codes (wire.json, enum Code) that are not the caller's fault though they look like it.
_RETRY_LATER: Final = frozenset({40800, 42900, 42901, 42902})
_NOT_THERE: Final = range(40400, 40500)
NOT_IMPLEMENTED: Final = 50100
OK: Final = 20000
MULTIPLE_RESULTS: Final = 30000


class CommandError(click.ClickException):
    """The operation failed; exit code 1."""

    code = 0  # the broker's status, where it gave one

    def after(self, done: str) -> "CommandError":
        """Return the same error, told with what had been done before it."""
        error = type(self)(f"{done}, then: {self.message}")
        error.code = self.code
        return error


class RefusedError(CommandError):
    """Bad input, or a request the broker refuses as long as it is asked like this; exit code 2."""

    exit_code = 2


class NotAllError(CommandError):
    """What was printed is not all: somebody who was asked did not answer; exit code 1."""


class NotThereError(RefusedError):
    """What was named does not exist, or not any more; exit code 3."""

    exit_code = 3


def error_of(code: int, message: str) -> CommandError:
    """Make the error for a status other than OK."""
    blamed = 40000 <= code < 50000 and code not in _RETRY_LATER
    kind = RefusedError if blamed or code == NOT_IMPLEMENTED else CommandError
    if code in _NOT_THERE:
        kind = NotThereError
    error = kind(f"{message or 'the broker gave no reason'} (code {code})")
    error.code = code
    return error


def one_line(error: click.ClickException, *, as_json: bool = False) -> str:
    """Write the error as a single line that names the command to ask for help.

    Args:
        as_json: as an object: what is wrong, the exit code, the broker's status where it gave one.
    """
    text = escaped(" ".join(error.format_message().split()))
    if as_json:
        answer = {"error": text, "exit_code": error.exit_code, "code": getattr(error, "code", 0)}
        return json.dumps(answer, ensure_ascii=False)
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None:
        text = f"{text.rstrip('.')}; see `{context.command_path} --help`"
    return f"latermq: {text}"
