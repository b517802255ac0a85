"""Parked receivers: who waits for what, who is served next, how many may wait.

Whoever waits stands in the line of its (group, topic), first come first served. A line holds one
queue per filter: once the first with a filter comes away empty, so would all behind it, so
they are not tried. A message therefore costs two tries, not one per receiver in the line; and one
where who takes it can tell that nothing is left (`parking.py`). Knows nothing of time and never
waits: the edge holds the futures and ends what has waited long enough.

    park ──→ in line ──serve says yes──→ gone
                └────────leave────────→ gone
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from latermq_broker.catalog.shares import count_up
from latermq_broker.errors import TooManyRequestsError

CONNECTION_MIN: Final = 8  # receivers of a connection that may wait as long as anybody may
CONNECTION_PERCENT: Final = 10  # of the places that are left: the share of one connection

Receiver = TypeVar("Receiver")


class Parked(Generic[Receiver]):
    """One place in a line."""

    __slots__ = (
        "client",
        "connection",
        "filter_key",
        "group",
        "number",
        "receiver",
        "topic",
        "user",
    )

    def __init__(
        self,
        group: str,
        topic: str,
        filter_key: Hashable,
        number: int,
        receiver: Receiver,
        client: str = "",
        connection: str = "",
        user: str = "",
    ) -> None:
        self.group = group
        self.topic = topic
        self.filter_key = filter_key
        self.number = number  # order of arrival
        self.receiver = receiver
        self.client = client
        self.connection = connection
        self.user = user


class LongPolls(Generic[Receiver]):
    """All lines; at most `count_max` receivers, `group_count_max` of one group."""

    def __init__(self, count_max: int, group_count_max: int) -> None:
        self._count_max = count_max
        self._group_count_max = group_count_max
        self._count = 0
        self._group_counts: dict[str, int] = {}
        self._client_counts: dict[str, int] = {}
        self._connection_counts: dict[str, int] = {}
        self._user_counts: dict[str, int] = {}
        self._next_number = 0
        # topic → group → filter key → place by number, in the order of arrival
        self._lines: dict[str, dict[str, dict[Hashable, dict[int, Parked[Receiver]]]]] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Parked[Receiver]]:
        """Yield all that wait, in no order, as they are now."""
        return iter(
            [
                parked
                for groups in self._lines.values()
                for line in groups.values()
                for queue in line.values()
                for parked in queue.values()
            ]
        )

    def waits(self, group: str, topic: str) -> bool:
        """Tell whether somebody stands in that line."""
        groups = self._lines.get(topic)
        return groups is not None and group in groups

    def waits_with(self, group: str, topic: str, filter_key: Hashable) -> bool:
        """Tell whether somebody with that filter stands in that line."""
        return filter_key in self._lines.get(topic, {}).get(group, {})

    def of_client(self, group: str, topic: str, client: str) -> list[Parked[Receiver]]:
        """List who stands in that line of one client."""
        if client not in self._client_counts:
            return []
        line = self._lines.get(topic, {}).get(group, {})
        return [
            parked
            for queue in line.values()
            for parked in queue.values()
            if parked.client == client
        ]

    def groups(self, topic: str) -> list[str]:
        """List the groups of which somebody waits for that topic."""
        return list(self._lines.get(topic, ()))

    def topics(self, group: str) -> list[str]:
        """List the topics for which somebody of that consumer group waits."""
        if group not in self._group_counts:
            return []
        return [topic for topic, groups in self._lines.items() if group in groups]

    def group_count(self, group: str) -> int:
        """Count how many of that consumer group wait."""
        return self._group_counts.get(group, 0)

    def client_count(self, client: str) -> int:
        """Count how many of that client wait."""
        return self._client_counts.get(client, 0)

    def user_count(self, user: str) -> int:
        """Count how many of that user wait."""
        return self._user_counts.get(user, 0)

    def park(
        self,
        group: str,
        topic: str,
        filter_key: Hashable,
        receiver: Receiver,
        client: str = "",
        connection: str = "",
        user: str = "",
    ) -> Parked[Receiver]:
        """Put a waiter at the end of a line.

        Args:
            filter_key: receivers with equal ones come away empty together.

        Raises:
            TooManyRequestsError: the broker, the group or the connection has as many as it may.
        """
        self.check(group, connection)
        parked = Parked(
            group, topic, filter_key, self._next_number, receiver, client, connection, user
        )
        self._next_number += 1
        self._count += 1
        self._count_up(parked, 1)
        line = self._lines.setdefault(topic, {}).setdefault(group, {})
        line.setdefault(filter_key, {})[parked.number] = parked
        return parked

    def check(self, group: str, connection: str = "") -> None:
        """Check that one more may stand in a line. Raises what `park` does."""
        group_count = self._group_counts.get(group, 0)
        if self._count >= self._count_max:
            raise TooManyRequestsError(
                f"{self._count} receives wait on this broker, at most {self._count_max} may"
            )
        if group_count >= self._group_count_max:
            raise TooManyRequestsError(
                f"{group_count} receives of consumer group {group} wait, at most "
                f"{self._group_count_max} may"
            )
        held = self._connection_counts.get(connection, 0)
        left = self._count_max - self._count
        if held >= CONNECTION_MIN and held * 100 >= CONNECTION_PERCENT * left:
            raise TooManyRequestsError(
                f"{held} receives of this connection wait; while {self._count} of "
                f"{self._count_max} wait on this broker, a connection may have "
                f"{max(CONNECTION_MIN, CONNECTION_PERCENT * left // 100)}"
            )

    def leave(self, parked: Parked[Receiver]) -> bool:
        """Take a waiter out of its line; False: it had left already."""
        groups = self._lines.get(parked.topic, {})
        line = groups.get(parked.group, {})
        queue = line.get(parked.filter_key, {})
        if queue.pop(parked.number, None) is None:
            return False
        self._count -= 1
        self._count_up(parked, -1)
        if not queue:
            del line[parked.filter_key]
            if not line:
                del groups[parked.group]
                if not groups:
                    del self._lines[parked.topic]
        return True

    def serve(self, group: str, topic: str, serve: Callable[[Receiver], bool]) -> None:
        """Offer what is there to the line, in order of arrival, until nobody takes any more.

        Args:
            serve: True when the receiver was answered: it leaves the line, the next is tried.
                False when there was nothing for it: it keeps its place.
        """
        line = self._lines.get(topic, {}).get(group)
        if line is None:
            return
        heads = [(next(iter(queue)), filter_key) for filter_key, queue in line.items()]
        if len(heads) > 1:  # the numbers differ, so filter keys are never compared
            heapify(heads)
        while heads:
            number, filter_key = heappop(heads)
            queue = line[filter_key]
            parked = queue[number]
            if serve(parked.receiver):
                self.leave(parked)
                if queue:
                    heappush(heads, (next(iter(queue)), filter_key))

    def _count_up(self, parked: Parked[Receiver], by: int) -> None:
        count_up(self._group_counts, parked.group, by)
        count_up(self._client_counts, parked.client, by)
        count_up(self._connection_counts, parked.connection, by)
        count_up(self._user_counts, parked.user, by)
