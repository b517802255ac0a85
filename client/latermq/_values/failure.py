"""What is told to the broker about a failed attempt: class, text, stack and the stack's hash."""

import hashlib
import os
import traceback
from dataclasses import dataclass
from typing import Final

# It travels as one gRPC header, in base64. Servers commonly take 8 KiB of headers in all, so the
# four parts together stay under what leaves room for the others.
CLASS_BYTES_MAX: Final = 256
TEXT_BYTES_MAX: Final = 1024
STACK_BYTES_MAX: Final = 3584
HASH_BYTES: Final = 8
REJECTED_CLASS: Final = "Rejected"


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
    frames = traceback.extract_tb(error.__traceback__)
    stack = "".join(traceback.format_exception(error))
    return Failure(
        class_name=_head(type(error).__qualname__, CLASS_BYTES_MAX),
        text=_head(text_of(error), TEXT_BYTES_MAX),
        stack_hash=_hash(type(error), frames),
        stack=_tail(stack, STACK_BYTES_MAX),
    )


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
