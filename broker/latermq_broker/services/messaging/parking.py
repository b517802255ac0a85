"""The waiting side of long polls: a `Later` and a timer for each, no future, no task.

`long_poll.py` knows the lines; here is what waits in them. A parked call is settled with
what was found for it, or with None when its time is over or the broker drains, or with the error
that the attempt raised.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar

from latermq_broker.catalog.access import User
from latermq_broker.catalog.limits import Scope
from latermq_broker.catalog.shares import Shares, key_of
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import ServerConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import Ready
from latermq_broker.errors import LaterMQError, TooManyRequestsError
from latermq_broker.services.call.handler import ParkedReceives
from latermq_broker.services.messaging.flow import FlowControl
from latermq_broker.services.messaging.long_poll import LongPolls, Parked

Found = TypeVar("Found")


_Key: TypeAlias = tuple[str, str, str, str]  # group, topic, client id, attempt id


class Waiter(Generic[Found]):
    """One parked call. `attempt` looks once more and returns what it found, or None."""

    __slots__ = ("attempt", "key", "later", "parked", "timer")

    def __init__(self, attempt: Callable[[], Found | None], key: _Key | None = None) -> None:
        self.attempt = attempt
        self.key = key  # of a call that is not to wait twice
        self.later: Later[Found | None] = Later()
        self.parked: Parked[Waiter[Found]] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def outcome(self) -> Found | None:
        """Tell what it was settled with, if it was; for the caller who went away meanwhile."""
        return self.later.value


class Parking(Generic[Found]):
    """All parked calls of one kind. Made and used in one running loop."""

    def __init__(
        self,
        config: ServerConfig,
        flow: FlowControl,
        shares: Shares | None = None,
        took_all: Callable[[Found], bool] | None = None,
        waits: Callable[[str, str], bool] | None = None,
    ) -> None:
        """
        Args:
            shares: of the calls of users that may wait.
            took_all: tells whether what was found leaves nothing to anybody else in the line.
            waits: tells whether a group's line of a topic has to wait for the next turn.
        """
        self._took_all = took_all
        self._waits = waits
        self._nothing_left = False  # in the line that is served; or its turn is over
        self._place = "", ""  # group and topic of that line
        self._flow = flow
        self._shares = shares or Shares(AuthConfig())
        self._count_max = config.parked_receives_max
        self._lines: LongPolls[Waiter[Found]] = LongPolls(
            config.parked_receives_max, config.parked_receives_per_group_max
        )
        self._by_key: dict[_Key, Waiter[Found]] = {}
        self._loop = asyncio.get_running_loop()
        self._draining = False

    @property
    def waiting(self) -> int:
        return len(self._lines)

    def park(
        self,
        group: str,
        topic: str,
        filter_key: Hashable,
        attempt: Callable[[], Found | None],
        polling_ms: int,
        client_id: str,
        connection_id: str,
        user: User | None = None,
        attempt_id: str = "",
    ) -> Waiter[Found]:
        """Wait for at most `polling_ms`; when draining, not at all.

        A client's call that waits with the same attempt id ends with nothing: the client gave it
        up, and what it is answered with would be lost.

        Raises:
            TooManyRequestsError: as many wait as may, of all, the group, the user, the client or
                the connection.
        """
        key = (group, topic, client_id, attempt_id) if attempt_id else None
        waiter = Waiter(attempt, key)
        if key is not None and (older := self._by_key.get(key)) is not None:
            self._time_over(older)
        if self._draining:
            waiter.later.give(None)
            return waiter
        self._admit(group, client_id, user)
        waiter.parked = self._lines.park(
            group, topic, filter_key, waiter, client_id, connection_id, key_of(user)
        )
        waiter.timer = self._loop.call_later(polling_ms / 1_000, self._time_over, waiter)
        if key is not None:
            self._by_key[key] = waiter
        return waiter

    def check(
        self, group: str, client_id: str, connection_id: str, user: User | None = None
    ) -> None:
        """Check that one more may wait. Raises what `park` does."""
        if not self._draining:
            self._admit(group, client_id, user)
            self._lines.check(group, connection_id)

    def has_room(self, group: str, client_id: str, connection_id: str, user: User | None) -> bool:
        """Tell whether one more may wait."""
        try:
            self.check(group, client_id, connection_id, user)
        except TooManyRequestsError:
            return False
        return True

    def _admit(self, group: str, client_id: str, user: User | None) -> None:
        lines, flow, name = self._lines, self._flow, key_of(user)
        if user is not None:
            self._shares.check(
                user, "calls that wait", "server.parked_receives_max", self._count_max,
                len(lines), lines.user_count(name),
            )  # fmt: skip
        if flow.table.polls:
            if user is not None:
                flow.admit_polls_of(Scope.USER, name, lines.user_count(name))
            flow.admit_polls_of(Scope.CLIENT, client_id, lines.client_count(client_id))
            flow.admit_polls_of(Scope.GROUP, group, lines.group_count(group))

    def leave(self, waiter: Waiter[Found]) -> None:
        """Stop waiting; no effect on one that no longer does."""
        self._forget(waiter)
        if waiter.parked is not None:
            self._lines.leave(waiter.parked)
            waiter.parked = None

    def waits_with(self, group: str, topic: str, filter_key: Hashable) -> bool:
        """Tell whether somebody with that filter waits in that line."""
        return self._lines.waits_with(group, topic, filter_key)

    def end_others(self, group: str, topic: str, client_id: str, filter_key: Hashable) -> None:
        """End the waits of a client in this line that have another filter, with nothing found."""
        for parked in self._lines.of_client(group, topic, client_id):
            if parked.filter_key != filter_key:
                self._time_over(parked.receiver)

    def serve(self, group: str, topic: str) -> None:
        """Let those who wait in this line look once more, in order of arrival."""
        if self._lines.waits(group, topic):
            self._nothing_left = False
            self._place = group, topic
            self._lines.serve(group, topic, self._try)

    def wake(self, ready: Ready) -> None:
        for group, topic in ready.pairs:
            self.serve(group, topic)
        for topic in ready.topics:
            for group in self._lines.groups(topic):
                if (group, topic) not in ready.pairs:
                    self.serve(group, topic)

        for group in ready.groups:
            for topic in self._lines.topics(group):
                self.serve(group, topic)

    def drain(self) -> None:
        self._draining = True
        for parked in self._lines:
            self._time_over(parked.receiver)

    def _try(self, waiter: Waiter[Found]) -> bool:
        later = waiter.later
        if later.settled:
            return True
        if self._nothing_left or (self._waits is not None and self._waits(*self._place)):
            self._nothing_left = True
            return False
        try:
            outcome = waiter.attempt()
        except LaterMQError as error:
            later.fail(error)
        else:
            if outcome is None:
                return False
            self._nothing_left = self._took_all is not None and self._took_all(outcome)
            later.give(outcome)
        self._forget(waiter)
        waiter.parked = None  # whoever asked takes it out of its line; no circle is left
        return True

    def _forget(self, waiter: Waiter[Found]) -> None:
        """Have nothing but its line know it any more."""
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        if waiter.key is not None and self._by_key.get(waiter.key) is waiter:
            del self._by_key[waiter.key]

    def _time_over(self, waiter: Waiter[Found]) -> None:
        self.leave(waiter)
        waiter.later.give(None)


class EveryParking(ParkedReceives):
    """All kinds together, as the pump and the runtime see them."""

    def __init__(self, kinds: Sequence[ParkedReceives]) -> None:
        self._kinds = kinds

    @property
    def waiting(self) -> int:
        return sum(kind.waiting for kind in self._kinds)

    def wake(self, ready: Ready) -> None:
        for kind in self._kinds:
            kind.wake(ready)

    def drain(self) -> None:
        for kind in self._kinds:
            kind.drain()
