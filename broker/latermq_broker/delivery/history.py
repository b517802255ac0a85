"""A dead letter's whole life, as its DEAD record keeps it. Readers decode what they are asked for.

Variable-length, descriptive and read by people and by Spark: so JSON, in one versioned object.

    {"v": 1, "topic": origin topic's name, "group": …, "reason": …, "signature": …,
     "attempts": [{"n", "start", "end", "client", "how", "class", "text", "hash", "stack",
                   "wait", "life"}, …]}        times in ms; absent keys mean empty or 0

A stack is the last value of its attempt, and nine tenths of the bytes: most readers want none. JSON
writes a quote inside a text as \\", so no text has one of the marks below, and bytes in front of
the attempts, or between two stacks, are cut out without being decoded.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from latermq_broker.delivery.failure import Failure
from latermq_broker.store.records.lease_records import Outcome as Outcome

VERSION: Final = 1
UNREADABLE: Final = "what is kept of its attempts cannot be read"
_ATTEMPTS: Final = b',"attempts":['
_STACK: Final = b',"stack":"'
_TEXT_END: Final = b'"}'
_BACKSLASH: Final = 0x5C


class Attempt(NamedTuple):
    attempt: int
    started_ms: int
    ended_ms: int
    client_id: str
    outcome: Outcome
    failure: Failure | None
    backoff_ms: int  # the wait after it
    life: int = 1  # one more for every redrive


@dataclass(frozen=True, slots=True)
class History:
    origin_topic: str
    group: str
    reason: str
    signature: str
    attempts: tuple[Attempt, ...]  # oldest first


_FAILURE_KEYS: Final = (
    ("class", "class_name"),
    ("text", "text"),
    ("hash", "stack_hash"),
    ("stack", "stack"),
)


NOTHING_KNOWN: Final = History("", "", UNREADABLE, "", ())  # of a history that nobody of ours wrote


def encode_history(history: History) -> bytes:
    attempts = []
    for attempt in history.attempts:
        entry: dict[str, Any] = {
            "n": attempt.attempt,
            "start": attempt.started_ms,
            "end": attempt.ended_ms,
            "client": attempt.client_id,
            "how": int(attempt.outcome),
        }
        if attempt.backoff_ms:
            entry["wait"] = attempt.backoff_ms
        if attempt.life != 1:
            entry["life"] = attempt.life
        if attempt.failure is not None:
            for key, name in _FAILURE_KEYS:
                entry[key] = getattr(attempt.failure, name)
        attempts.append(entry)
    document = {
        "v": VERSION,
        "topic": history.origin_topic,
        "group": history.group,
        "reason": history.reason,
        "signature": history.signature,
        "attempts": attempts,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "replace"
    )


def decode_outline(body: bytes) -> History:
    """Decode a history without its attempts; of one that cannot be read it says so."""
    before, attempts, _ = body.partition(_ATTEMPTS)
    try:
        document = json.loads(before + b"}" if attempts else body)
        return History(
            document["topic"], document["group"], document["reason"], document["signature"], ()
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return NOTHING_KNOWN


def without_stacks(body: bytes) -> bytes:
    """Cut the stacks out of an encoded history; they are "" once it is decoded."""
    parts: list[bytes] = []
    begin = 0
    while (at := body.find(_STACK, begin)) >= 0:
        parts.append(body[begin:at])
        begin = _text_end(body, at + len(_STACK))
    parts.append(body[begin:])
    return b"".join(parts)


def _text_end(body: bytes, first: int) -> int:
    """Find the end of the text whose first byte is at `first`: behind its closing quote, or the
    end of the bytes where it has none."""
    at = body.find(_TEXT_END, first)
    while at >= 0:
        before = at
        while body[before - 1] == _BACKSLASH:
            before -= 1
        if not (at - before) % 2:  # the quote itself is not escaped
            return at + 1
        at = body.find(_TEXT_END, at + 1)
    return len(body)


def decode_history(body: bytes) -> History:
    """Decode what a letter tells of its life; of one that cannot be read it says so."""
    try:
        return _decoded(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return NOTHING_KNOWN


def _decoded(body: bytes) -> History:
    document = json.loads(body)
    attempts = tuple(
        Attempt(
            attempt=entry["n"],
            started_ms=entry["start"],
            ended_ms=entry["end"],
            client_id=entry["client"],
            outcome=Outcome(entry["how"]),
            failure=_failure(entry),
            backoff_ms=entry.get("wait", 0),
            life=entry.get("life", 1),
        )
        for entry in document["attempts"]
    )
    return History(
        origin_topic=document["topic"],
        group=document["group"],
        reason=document["reason"],
        signature=document["signature"],
        attempts=attempts,
    )


def _failure(entry: dict[str, Any]) -> Failure | None:
    if "class" not in entry:
        return None
    outcome = Outcome(entry["how"])
    fields = {name: entry.get(key, "") for key, name in _FAILURE_KEYS}
    return Failure(**fields, rejected=outcome is Outcome.REJECTED)


def last_failure(attempts: Sequence[Attempt]) -> Failure | None:
    """Find the newest failure that a consumer reported; None: none did."""
    return next((a.failure for a in reversed(attempts) if a.failure is not None), None)


class Life:
    """A dead letter's history, each part of which is decoded when it is first asked for.

    Attempts have times of day, oldest first.
    """

    __slots__ = ("_body", "_outline", "_short", "_time_of_day", "_whole")

    def __init__(self, body: bytes, time_of_day: Callable[[int], int]) -> None:
        """Read `body`, an encoded history; empty: of a letter that no attempt led to."""
        self._body = body
        self._time_of_day = time_of_day
        self._outline: History | None = None
        self._short: tuple[Attempt, ...] | None = None
        self._whole: tuple[Attempt, ...] | None = None

    @property
    def outline(self) -> History:
        """Return the history without its attempts."""
        if self._outline is None:
            empty = History("", "", "", "", ())
            self._outline = decode_outline(self._body) if self._body else empty
        return self._outline

    @property
    def short(self) -> tuple[Attempt, ...]:
        """Return the attempts without stacks."""
        if self._short is None:
            self._short = self._decoded(without_stacks(self._body))
        return self._short

    @property
    def whole(self) -> tuple[Attempt, ...]:
        """Return the attempts with their stacks."""
        if self._whole is None:
            self._whole = self._decoded(self._body)
        return self._whole

    def _decoded(self, body: bytes) -> tuple[Attempt, ...]:
        if not body:
            return ()
        time_of_day = self._time_of_day
        return tuple(
            each._replace(
                started_ms=time_of_day(each.started_ms), ended_ms=time_of_day(each.ended_ms)
            )
            for each in decode_history(body).attempts
        )
