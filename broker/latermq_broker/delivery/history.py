"""A dead letter's whole life, as its DEAD record keeps it.

Variable-length, descriptive and read by people and by Spark: so JSON, in one versioned object.

    {"v": 1, "topic": origin topic's name, "group": …, "reason": …, "signature": …,
     "attempts": [{"n", "start", "end", "client", "how", "class", "text", "hash", "stack",
                   "wait", "life"}, …]}        times in ms; absent keys mean empty or 0
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from latermq_broker.delivery.failure import Failure
from latermq_broker.store.records.lease_records import Outcome as Outcome

VERSION: Final = 1


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


def decode_history(body: bytes) -> History:
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
    fields = {name: entry[key] for key, name in _FAILURE_KEYS}
    return Failure(**fields, rejected=outcome is Outcome.REJECTED)


def last_failure(attempts: Sequence[Attempt]) -> Failure | None:
    """Find the newest failure that a consumer reported; None: none did."""
    return next((a.failure for a in reversed(attempts) if a.failure is not None), None)
