"""Why an attempt failed, as the consumer told it."""

import hashlib
import re
from typing import Final, NamedTuple

_VARIABLE: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}|0x[0-9a-fA-F]+|\b[0-9a-fA-F]{16,}\b|\d+"
)
_BLANKS: Final = re.compile(r"\s+")


class Failure(NamedTuple):
    """latermq.v1.Failure, already capped by the edge."""

    class_name: str = ""
    text: str = ""
    stack_hash: str = ""
    stack: str = ""
    rejected: bool = False  # the application itself refuses the message


def signature(failure: Failure | None) -> str:
    """Compute 16 hex digits that are equal for failures of one kind.

    Hash of the class, the text with its numbers, ids and blanks evened out, and the stack hash;
    empty when nothing was told.
    """
    if failure is None or not (failure.class_name or failure.text):
        return ""
    text = _BLANKS.sub(" ", _VARIABLE.sub("#", failure.text)).strip()
    identity = "\x1f".join((failure.class_name, text, failure.stack_hash))
    return hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=8).hexdigest()
