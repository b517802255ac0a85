"""What is told to the broker about a failed attempt: class, text, stack and the stack's hash."""

import concurrent.futures
import hashlib
import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

# It travels as one gRPC header, in base64. Servers commonly take 8 KiB of headers in all, so the
# four parts together stay under what leaves room for the others.
CLASS_BYTES_MAX: Final = 256
TEXT_BYTES_MAX: Final = 1024
STACK_BYTES_MAX: Final = 3584
HASH_BYTES: Final = 8
REJECTED_CLASS: Final = "Rejected"

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
    """Return what the broker should know about `error`, cut to what a header may hold."""
    stack_from = of_application(error)
    frames = traceback.extract_tb(stack_from)
    stack = "".join(traceback.format_exception(type(error), error, stack_from))
    return Failure(
        class_name=_head(type(error).__qualname__, CLASS_BYTES_MAX),
        text=_head(text_of(error), TEXT_BYTES_MAX),
        stack_hash=_hash(type(error), frames),
        stack=_tail(stack, STACK_BYTES_MAX),
    )


def of_application(error: BaseException) -> TracebackType | None:
    """Return the traceback from the application's first frame on: those that called it say nothing.

    All of it where the application has none, as when a payload does not fit.
    """
    at = error.__traceback__
    while at is not None and _calls(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    return at or error.__traceback__


def exc_info(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return what a log record is to show of it."""
    return type(error), error, of_application(error)


def text_of(error: BaseException) -> str:
    """Return what an exception says, whatever class of an application's it is."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  its `__str__` is not ours
        return "<exception str() failed>"  # as tracebacks say it


def rejection(reason: str, error: BaseException | None = None) -> Failure:
    """Return the failure of a message the application refuses for `reason`."""
    text = _head(reason, TEXT_BYTES_MAX)
    if error is None:
        return Failure(REJECTED_CLASS, text, rejected=True)
    cause = describe(error)
    return Failure(cause.class_name, text, cause.stack_hash, cause.stack, rejected=True)


def _calls(file: str) -> bool:
    return file.startswith(_CALLING) and not file.startswith(_DEMO)


def _hash(error: type[BaseException], frames: traceback.StackSummary) -> str:
    """Hash where it happened without line numbers: an edit elsewhere in a file keeps it."""
    places = [f"{os.path.basename(frame.filename)}:{frame.name}" for frame in frames]
    text = "\n".join([error.__qualname__, *places])
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=HASH_BYTES)
    return digest.hexdigest()


def _head(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _tail(text: str, size: int) -> str:
    """Keep the end: the innermost frames and the error itself stand there."""
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")
