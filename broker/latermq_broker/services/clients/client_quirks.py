"""What single client releases need told differently: a table, one row per quirk.

Each row names whom it is for and why; everybody else gets what the protocol says. A row goes away
when its releases do.
"""

import re
from collections.abc import Callable
from enum import Flag, auto
from functools import lru_cache
from typing import Final, NamedTuple


class Quirk(Flag):
    """What the broker does differently for a client."""

    NONE = 0
    EXPONENTIAL_ONLY = auto()  # understands no ladder: gets its first step, doubled each time
    SECONDS_FOR_MS = auto()  # takes whole seconds of that policy for milliseconds
    LADDER_ONE_AHEAD = auto()  # looks the wait after attempt n up at n, counting from 0
    NO_PUSHED_SETTINGS = auto()  # settings it did not ask for do not reach it, or do harm
    ANSWERS_NO_QUESTIONS = auto()  # ignores stack traces and messages to verify
    DEAF_TO_OLD_STREAMS = auto()  # once told to open a new one; dies if the old one fails
    PASSES_FAILURES_BY = auto()  # goes on with a reply while one of it waits to be tried again
    OLD_POLLING_CODE = auto()  # does not know ILLEGAL_POLLING_TIME
    PAUSES_WHEN_FULL = auto()  # does not ask for a whole second once its push consumer is full


class Row(NamedTuple):
    quirk: Quirk
    language: str  # header x-mq-language in upper case; "" for every client
    concerns: Callable[[str], bool]  # whether a version, header x-mq-client-version, is meant


_VERSION: Final = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")
_FIRST_WITH_POLLING_CODE: Final = "5.0.3"
_KNOWN_MAX: Final = 1_024  # pairs of headers, which anybody can make up
_CHARACTERS_MAX: Final = 64  # of each that are looked at


def _up_to(last: tuple[int, int, int]) -> Callable[[str], bool]:
    def concerns(version: str) -> bool:
        """Tell whether a version has the quirk: an unreadable one is a new one."""
        match = _VERSION.match(version.strip())
        return match is not None and tuple(int(part or 0) for part in match.groups()) <= last

    return concerns


def _official(version: str) -> bool:
    """Tell an official client from our SDK, which names itself, reads on and answers."""
    return not version.startswith("latermq-")


def _every(version: str) -> bool:
    return True


TABLE: Final = (
    # To Node.js a ladder means no wait at all, and one attempt in FIFO groups; it knows the
    # exponential form only. So does every release up to the newest, 1.0.8.
    Row(Quirk.EXPONENTIAL_ONLY, "HTTP", _up_to((1, 0, 8))),
    # And of that it counts the whole seconds as milliseconds.
    Row(Quirk.SECONDS_FOR_MS, "HTTP", _up_to((1, 0, 8))),
    # Told to reconnect, it takes its listeners from the old stream; an error there, such as a lost
    # connection, then ends the process. A stream that we end in the same write has none.
    Row(Quirk.DEAF_TO_OLD_STREAMS, "HTTP", _up_to((1, 0, 8))),
    # Go plans the retry of a failed message and goes on at once, in FIFO groups too, up to the
    # newest, 5.1.4: its push consumer gets one of each message group at a time.
    Row(Quirk.PASSES_FAILURES_BY, "GO", _up_to((5, 1, 4))),
    # C++ takes the second step of a ladder after the first failure: it gets the first one twice.
    Row(Quirk.LADDER_ONE_AHEAD, "CPP", _every),
    # C++ appends the steps of every answer to those it has: a new policy would never be looked at.
    Row(Quirk.NO_PUSHED_SETTINGS, "CPP", _every),
    # Python's push consumer stops reading its stream after the first settings: metrics are off.
    Row(Quirk.NO_PUSHED_SETTINGS, "PYTHON", _official),
    # Python and Rust take questions of the broker and never answer: nobody should wait for that.
    Row(Quirk.ANSWERS_NO_QUESTIONS, "PYTHON", _official),
    Row(Quirk.ANSWERS_NO_QUESTIONS, "RUST", _every),
    # A push consumer that holds as much as it may (1,024 messages for all its queues) looks again a
    # second later, long after it has worked them off. Shortly before, it asks for what still fits.
    Row(Quirk.PAUSES_WHEN_FULL, "JAVA", _every),
    Row(Quirk.PAUSES_WHEN_FULL, "GO", _every),
    Row(Quirk.PAUSES_WHEN_FULL, "DOTNET", _every),
    Row(Quirk.PAUSES_WHEN_FULL, "HTTP", _every),
    Row(Quirk.PAUSES_WHEN_FULL, "PYTHON", _official),
    # Compared as text, as RocketMQ does; those who tell no version are old too.
    Row(Quirk.OLD_POLLING_CODE, "", lambda version: version < _FIRST_WITH_POLLING_CODE),
)


def quirks_of(language: str, version: str) -> Quirk:
    """List all quirks of a client.

    Args:
        language, version: of its headers x-mq-language and x-mq-client-version; "" when absent.
    """
    return _quirks_of(language[:_CHARACTERS_MAX], version[:_CHARACTERS_MAX])


@lru_cache(_KNOWN_MAX)
def _quirks_of(language: str, version: str) -> Quirk:
    quirks = Quirk.NONE
    for row in TABLE:
        if row.language in ("", language.upper()) and row.concerns(version):
            quirks |= row.quirk
    return quirks
