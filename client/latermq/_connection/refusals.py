"""One line when a broker begins to refuse a group's calls, one when it ends, however much is tried.

A consumer that has started repeats its calls until they are taken: receives, heartbeats, settings,
assignments, acknowledgements. A broker that answers, and refuses them, gives it nothing: the user's
secret was rotated or a right revoked, the user, topic or group was deleted. Outages are told by
`outages.py`.

    taken ──refused for LASTING_S──→ refused, WARNING ──no call refused any more──→ taken, WARNING
"""

import logging
import time
from collections.abc import Callable, Hashable
from typing import Final

from latermq._connection.outages import log_failure
from latermq._connection.silence import nobody_answered
from latermq.errors import ClosedError, LaterMQError, ServerError, TooManyRequestsError

log = logging.getLogger("latermq.client")

LASTING_S: Final = 1.0  # a call that is refused for so long is no accident of a moment
BUSY_S: Final = 10.0  # likewise of a broker that is overloaded, or failed itself
REPEATED_S: Final = 120.0  # a call that was not refused again for so long is made no more


class _Refusal:
    """A call that is refused: since when, when last, and why."""

    __slots__ = ("error", "last_s", "lasts", "since_s", "what")

    def __init__(self, what: str, now_s: float) -> None:
        self.what = what
        self.since_s = self.last_s = now_s
        self.error = ""
        self.lasts = False


class Refusals:
    """Which calls of the sessions of one client are refused.

    Args:
        now_s: a clock that only goes forward.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._calls: dict[SessionRefusals, dict[Hashable, _Refusal]] = {}
        self._told_since: dict[str, float] = {}  # since when, by group

    @property
    def reasons(self) -> dict[str, str]:
        """Return what is refused, and why, by group ("": of producers)."""
        self._expire()
        reasons: dict[str, str] = {}
        for owner, calls in self._calls.items():
            for each in calls.values():
                if owner.group in self._told_since and (each.lasts or owner.group not in reasons):
                    reasons[owner.group] = f"{each.what}: {each.error}"
        return reasons

    def is_told(self, group: str) -> bool:
        """Tell whether it was logged that calls of the group are refused."""
        return group in self._told_since

    def refused(
        self, owner: "SessionRefusals", key: Hashable, what: str, error: LaterMQError
    ) -> None:
        """Note a refused call; the first one that lasts is logged."""
        self._expire()
        now_s = self._now_s()
        refusal = self._calls.setdefault(owner, {}).setdefault(key, _Refusal(what, now_s))
        refusal.last_s, refusal.error = now_s, str(error)
        busy = isinstance(error, TooManyRequestsError | ServerError)
        refusal.lasts = now_s - refusal.since_s >= (BUSY_S if busy else LASTING_S)
        group = owner.group
        if refusal.lasts and group not in self._told_since:
            self._told_since[group] = refusal.since_s
            log.warning(
                "the broker refuses calls of %s: %s: %s; trying again until it takes them",
                f"group {group}" if group else "this producer", what, error,
                extra={"group": group, "call": what, "reason": str(error)},
            )  # fmt: skip

    def taken(self, owner: "SessionRefusals", key: Hashable) -> None:
        """Note a call that was not refused, or that is made no more."""
        calls = self._calls.get(owner)
        if calls is not None and calls.pop(key, None) is not None and not calls:
            self.forget(owner)

    def forget(self, owner: "SessionRefusals") -> None:
        """Forget a session that has ended, or of which nothing is refused."""
        self._calls.pop(owner, None)
        group = owner.group
        if group in self._told_since and not any(each.group == group for each in self._calls):
            seconds = self._now_s() - self._told_since.pop(group)
            log.warning(
                "no call of %s is refused any more, after %.1f s",
                f"group {group}" if group else "this producer", seconds,
                extra={"group": group, "seconds": seconds},
            )  # fmt: skip

    def _expire(self) -> None:
        """Forget calls that are not made any more."""
        before_s = self._now_s() - REPEATED_S
        for owner, calls in list(self._calls.items()):
            for key in [key for key, each in calls.items() if each.last_s < before_s]:
                self.taken(owner, key)


class SessionRefusals:
    """The refused calls of one session.

    Args:
        group: "" for a producer.
    """

    def __init__(self, group: str, everything: Refusals) -> None:
        self.group = group
        self._everything = everything

    @property
    def reason(self) -> str:
        """Return what the broker refuses the group, and why; "": nothing, for long."""
        return self._everything.reasons.get(self.group, "")

    def failed(self, key: Hashable, what: str, error: LaterMQError, **about: object) -> None:
        """Note and log a call that failed and is made again, whatever it failed with.

        Args:
            key: names the call among those of the session.
            about: what the line says further.
        """
        known = self._everything.is_told(self.group)
        log_failure(log, f"{what} failed", error, quietly=known, **about)
        if nobody_answered(error) or isinstance(error, ClosedError):
            return
        where = f" of {about['topic']}" if "topic" in about else ""
        self._everything.refused(self, key, f"{what}{where}", error)

    def taken(self, key: Hashable) -> None:
        """Note a call that was answered, or that is made no more."""
        self._everything.taken(self, key)

    def end(self) -> None:
        """Note that the session has ended."""
        self._everything.forget(self)
