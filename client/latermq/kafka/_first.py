"""The attempt that failed at Kafka, told to LaterMQ with the record: attempts count from it.

The message is received at once, without a call of the handler, to say that its first attempt has
failed, of what, and what the handler's rules make of that: then the group's backoff begins, the
history has the exception, and the next attempt is the second. A letter that somebody redrove is the
same message, received as the first time: that is asked where it may be one.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Final, NamedTuple

from latermq._values.failure import Failure, describe
from latermq.delivery import Outcome, Verdict

FAILURE_PROPERTY: Final = "kafka-failure"
LINE_BYTES_MAX: Final = 7 << 10
NO_STACK: Final = {"stack": ""}


class FirstFailure(NamedTuple):
    """What happened at Kafka.

    Fields:
        at_ms: when, by the worker's clock.
        attempts: so many were made, where records are written to their topic again; else 1.
        verdict: what the handler's rules say of it.
    """

    at_ms: int
    attempts: int
    verdict: Verdict
    failure: Failure

    @classmethod
    def now(cls, error: Exception, verdict: Verdict, attempts: int) -> "FirstFailure":
        return cls(time.time_ns() // 1_000_000, attempts, verdict, describe(error))

    def line(self) -> str:
        """Write it for the message's property; without the stack where that is long."""
        after = self.verdict.after
        fields = {
            "at_ms": self.at_ms,
            "attempts": self.attempts,
            "outcome": self.verdict.outcome.name,
            "after_ms": None if after is None else after // timedelta(milliseconds=1),
            **asdict(self.failure),
        }
        line = json.dumps(fields, separators=(",", ":"))
        if len(line) <= LINE_BYTES_MAX:
            return line
        return json.dumps({**fields, **NO_STACK}, separators=(",", ":"))

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "FirstFailure | None":
        """Read it; None: there was none, or nothing that can be read, and the handler is called."""
        try:
            fields = json.loads(properties[FAILURE_PROPERTY])
            after = fields.pop("after_ms")
            outcome = Outcome[fields.pop("outcome")]
            wait = None if after is None else timedelta(milliseconds=after)
            at_ms, attempts = int(fields.pop("at_ms")), int(fields.pop("attempts"))
            return cls(at_ms, attempts, Verdict(outcome, wait), Failure(**fields))
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
            return None

    @property
    def counted(self) -> int:
        """Return how many attempts were made that count: not one that was given back."""
        return self.attempts - (self.verdict.outcome is Outcome.RETURNED)

    def left_of(self, wait: timedelta) -> timedelta:
        """Return what is left of this wait after it; not more, whatever the clocks say."""
        elapsed = timedelta(milliseconds=max(time.time_ns() // 1_000_000 - self.at_ms, 0))
        return max(wait - elapsed, timedelta(0))
