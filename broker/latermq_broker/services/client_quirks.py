"""What single client releases need told differently, as a table.

Each row names who it is for and why; everything else gets what the protocol says. Rows go away when
the releases do.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Quirks:
    """backoff_as_exponential: understands no ladder; send an exponential policy.
    backoff_seconds_are_ms: reads the seconds of that policy as milliseconds.
    """

    backoff_as_exponential: bool = False
    backoff_seconds_are_ms: bool = False


NONE: Final = Quirks()

# (x-mq-language, last version concerned, quirks)
_TABLE: Final = (
    # Node.js takes only the exponential form (a ladder means delay 0, and one attempt for FIFO),
    # and counts its whole seconds as milliseconds. So does every release up to the newest, 1.0.8.
    (
        "HTTP",
        (1, 0, 8),
        Quirks(backoff_as_exponential=True, backoff_seconds_are_ms=True),
    ),
)

_VERSION: Final = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")


def quirks_of(language: str, version: str) -> Quirks:
    """By the headers x-mq-language and x-mq-client-version; an unreadable version is a new one."""
    for row_language, last, quirks in _TABLE:
        if language.upper() == row_language:
            match = _VERSION.match(version.strip())
            if match and tuple(int(part or 0) for part in match.groups()) <= last:
                return quirks
    return NONE
