"""Which dead letters a page shows: read from the query, so that a link tells all of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from latermq_console import clock
from latermq_console.serving.console import FormError, View
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_text.instants import parse_instant_ms

SIGNATURE: Final = re.compile(r"[0-9a-f]{16}")
PERIODS: Final = {"15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000,
                  "7d": 604_800_000}  # fmt: skip
STATES: Final = ("dead", "redriven", "dropped", "any")
TEXT_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The filter as people write it.

    Fields:
        since: one of PERIODS, or an instant in ISO 8601; "": all.
        until: an instant; "": all.
    """

    text: str = ""
    signature: str = ""
    failure_class: str = ""
    topic: str = ""
    since: str = ""
    until: str = ""
    state: str = ""

    @property
    def any(self) -> bool:
        return any((self.text, self.signature, self.failure_class, self.topic, self.since,
                    self.until, self.state))  # fmt: skip

    @property
    def changeable(self) -> bool:
        """Tell whether these are letters that can still be redriven."""
        return self.state in ("", "dead")

    def query(self) -> dict[str, str]:
        """Return what stands in a link."""
        pairs = {
            "q": self.text, "signature": self.signature, "class": self.failure_class,
            "topic": self.topic, "since": self.since, "until": self.until, "state": self.state,
        }  # fmt: skip
        return {name: value for name, value in pairs.items() if value}

    def with_signature(self, signature: str) -> "Asked":
        return replace(self, signature=signature)

    def frozen(self) -> "Asked":
        """Return the same with a beginning that stays: what was counted is what is changed later.

        The oldest letters, of which the first is tried, would be the first that no period has.
        """
        if self.since not in PERIODS:
            return self
        since = datetime.fromtimestamp(instant_ms(self.since) / 1_000, UTC)
        return replace(self, since=f"{since:%Y-%m-%dT%H:%M:%S}")

    def filter(self) -> dead_pb2.DeadLetterFilter:
        """Return what the broker filters by. Raises FormError: a time that is none."""
        return dead_pb2.DeadLetterFilter(
            signature=self.signature,
            failure_class=self.failure_class,
            origin_topic=self.topic,
            dead_after_ms=instant_ms(self.since),
            dead_before_ms=instant_ms(self.until),
            state=(self.state or "dead").upper(),
        )

    def words(self) -> str:
        """Say in words what these letters have in common."""
        parts = []
        if self.failure_class:
            parts.append(f"of class {self.failure_class}")
        if self.signature:
            parts.append(f"with signature {self.signature}")
        if self.topic:
            parts.append(f"from topic {self.topic}")
        if self.text:
            parts.append(f"that say “{self.text}”")
        if self.since in PERIODS:
            parts.append(f"of the last {self.since}")
        elif self.since:
            parts.append(f"since {self.since}")
        if self.until:
            parts.append(f"until {self.until}")
        return ", ".join(parts)


def asked_of(view: View) -> Asked:
    """Read the filter of a page's query. Raises FormError."""
    return _checked(view.asked)


def asked_in_form(view: View) -> Asked:
    """Read the filter that a form carries. Raises FormError."""
    return _checked(view.field)


def _checked(read: Callable[[str], str]) -> Asked:
    asked = Asked(
        text=read("q")[:TEXT_MAX],
        signature=read("signature").lower(),
        failure_class=read("class")[:TEXT_MAX],
        topic=read("topic")[:TEXT_MAX],
        since=read("since"),
        until=read("until"),
        state=read("state"),
    )
    if asked.signature and not SIGNATURE.fullmatch(asked.signature):
        raise FormError("a signature is 16 hex digits")
    if asked.state and asked.state not in STATES:
        raise FormError(f"the state is one of {', '.join(STATES)}")
    asked.filter()
    return asked


def instant_ms(text: str) -> int:
    """Return milliseconds since the epoch, 0 for "". Times without a zone are in UTC."""
    if not text:
        return 0
    if text in PERIODS:
        # Rounded, so that tabs which ask within a few seconds ask for the same.
        return (clock.now_ms() - PERIODS[text]) // 10_000 * 10_000
    try:
        return max(1, parse_instant_ms(text, zone=UTC))
    except ValueError as error:
        raise FormError(str(error)) from None
