"""What is told to the broker about a failed attempt: class, text, stack and the stack's hash.

An exception is an application's class: its `__str__`, `__notes__` or `__getattr__` may raise
while it is described. What cannot be had is left out; nothing here raises.
"""

import concurrent.futures
import hashlib
import logging
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

# It travels as one gRPC header, in base64. Servers commonly take 8 KiB of headers in all, so the
# four parts together stay under what leaves room for the others.
CLASS_BYTES_MAX: Final = 256
TEXT_BYTES_MAX: Final = 1024
STACK_BYTES_MAX: Final = 3584
HASH_BYTES: Final = 8
REJECTED_CLASS: Final = "Rejected"
UNSAID: Final = "<exception str() failed>"

_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"
_DEMO: Final = f"{_PACKAGE}demo{os.sep}"  # an application like others
_CALLING: Final = (_PACKAGE, f"{Path(concurrent.futures.__file__).parent}{os.sep}")


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt; `rejected` when the application itself gave the message up."""

    class_name: str
    text: str
    stack_hash: str = ""
    stack: str = ""
    rejected: bool = False


def describe(error: BaseException) -> Failure:
    """Return what the broker should know about `error`, cut to what a header may hold.

    An error whose class raises while it is described is described by class, text and frames alone.
    """
    stack_from = of_application(error)
    name, stack = class_name_of(error), _stack(error, stack_from)
    if stack is None:
        stack = _frames(stack_from) + _plain(error)
    return Failure(
        class_name=_head(name, CLASS_BYTES_MAX),
        text=_head(text_of(error), TEXT_BYTES_MAX),
        stack_hash=_hash(name, stack_from),
        stack=_tail(stack, STACK_BYTES_MAX),
    )


def of_application(error: BaseException) -> TracebackType | None:
    """Return the traceback from the application's first frame on: those that called it say nothing.

    All of it where the application has none, as when a payload does not fit.
    """
    whole = at = _traceback_of(error)
    while at is not None and _calls(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    return at or whole


def exc_info(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return what a log record is to show of it.

    A formatter raises for an error that `traceback` cannot show, and the record is lost: such an
    error is replaced by one of the same name that has its text only.
    """
    stack_from = of_application(error)
    if _stack(error, stack_from) is None:
        kind: type[BaseException] = type("Error", (Exception,), {})
        kind.__module__, kind.__qualname__ = "builtins", class_name_of(error)
        return kind, kind(text_of(error)), stack_from
    return type(error), error, stack_from


def class_name_of(error: BaseException) -> str:
    """Return the name of its class, whatever its metaclass says."""
    name: str = type.__dict__["__qualname__"].__get__(type(error))
    return name


def text_of(error: BaseException) -> str:
    """Return what an exception says, whatever class of an application's it is."""
    try:
        return str.__str__(str(error))
    except BaseException:  # noqa: BLE001  its `__str__` is not ours
        return UNSAID  # as tracebacks say it


def tell(log: logging.Logger, level: int, text: str, *given: object, **about: Any) -> None:
    """Log on the way to settling a message, which goes on if a handler or a filter that the
    application gave to logging raises; that is written to stderr, as logging does."""
    try:
        log.log(level, text, *given, stacklevel=2, **about)
    except Exception:  # noqa: BLE001  a message is settled, logged or not
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()


def rejection(reason: str, error: BaseException | None = None) -> Failure:
    """Return the failure of a message the application refuses for `reason`."""
    text = _head(reason, TEXT_BYTES_MAX)
    if error is None:
        return Failure(REJECTED_CLASS, text, rejected=True)
    cause = describe(error)
    return Failure(cause.class_name, text, cause.stack_hash, cause.stack, rejected=True)


def _calls(file: str) -> bool:
    return file.startswith(_CALLING) and not file.startswith(_DEMO)


def _traceback_of(error: BaseException) -> TracebackType | None:
    """Return its traceback, past an attribute of that name which its class may have."""
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return trace


def _stack(error: BaseException, stack_from: TracebackType | None) -> str | None:
    """Return the error as a traceback shows it; None: its class, or one that caused it, raises."""
    try:
        return "".join(traceback.format_exception(type(error), error, stack_from))
    except BaseException:  # noqa: BLE001  its attributes are not ours
        return None


def _frames(stack_from: TracebackType | None) -> str:
    try:
        return "".join(traceback.format_tb(stack_from))
    except BaseException:  # noqa: BLE001  a loader of the application's has its sources
        return ""


def _plain(error: BaseException) -> str:
    return f"{class_name_of(error)}: {text_of(error)}\n"


def _hash(class_name: str, stack_from: TracebackType | None) -> str:
    """Hash where it happened without line numbers: an edit elsewhere in a file keeps it."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(stack_from)]
    places = [f"{os.path.basename(code.co_filename)}:{code.co_name}" for code in codes]
    text = "\n".join([class_name, *places])
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=HASH_BYTES)
    return digest.hexdigest()


def _head(text: str, size: int) -> str:
    return text[:size].encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _tail(text: str, size: int) -> str:
    """Keep the end: the innermost frames and the error itself stand there."""
    return text[-size:].encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")
