"""Order and time of background work on the event loop: pure, given the time in nanoseconds.

Work that lasts (a redrive, a list with a filter, a bulk read, retention) is done in slices between
two calls that are answered at once. A slice is charged with the time it took, however long it was
meant to be. The next slice goes to the user who was charged least, and within that user to the kind
of work that was charged least; works of one kind take turns:

    users ──least charged──► kinds of that user ──least charged──► works, first in first out

A user or kind that was idle starts at the charge of the one served last, so idle time earns no
credit, and a debt stays. This is deficit round robin with charges that are known after each slice.

While calls are answered at once beside it (`foreground`), all slices together get `percent` of the
time: at 20, the slice after one of 1 ms begins 5 ms after that one did. A slice is `SLICE_NS` long,
or up to `TURN_NS_MAX` if the loop came late and the share was not used up.

At most `running_max` works of a user take turns. A work beyond waits until one of these rests or
ends, and a user with `waiting_max` works beyond may begin none.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

from latermq_broker.errors import TooManyRequestsError

SLICE_NS: Final = 1_000_000
TURN_NS_MAX: Final = 2_000_000
LOADED_NS: Final = 50_000_000  # since a call was answered at once: the share counts for so long
USERS_KEPT: Final = 1_024  # without work, before those that owe nothing are forgotten


class Charged:
    """A user, or a kind of work of one user, in a `Line`."""

    __slots__ = ("charged_ns", "in_line")

    def __init__(self) -> None:
        self.charged_ns = 0
        self.in_line = False


Member = TypeVar("Member", bound=Charged)


class Line(Generic[Member]):
    """A queue of members, least charged first; members with equal charges in order of arrival."""

    def __init__(self) -> None:
        self.served_ns = 0  # the charge of the member that was served last
        self._heap: list[tuple[int, int, Member]] = []
        self._count = 0

    def join(self, member: Member) -> None:
        """Queue a member that is not in line yet."""
        if member.in_line:
            return
        member.in_line = True
        member.charged_ns = max(member.charged_ns, self.served_ns)
        self._count += 1
        heappush(self._heap, (member.charged_ns, self._count, member))

    def take(self) -> Member:
        """Remove and return the least charged member. The line must not be empty."""
        member = heappop(self._heap)[2]
        member.in_line = False
        return member


class Kind(Charged):
    """One kind of work of one user."""

    __slots__ = ("ready",)

    def __init__(self) -> None:
        super().__init__()
        self.ready: deque[Work] = deque()


class User(Charged):
    """What one user has begun.

    Attributes:
        begun: works that have not ended.
        seated: works that may take turns.
        waiting: works that want a turn, beyond those.
        ready: works that wait for their turn, of all kinds.
    """

    __slots__ = ("begun", "kinds", "line", "name", "ready", "seated", "waiting")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.begun = self.seated = self.ready = 0
        self.waiting: deque[Work] = deque()
        self.kinds: dict[str, Kind] = {}
        self.line: Line[Kind] = Line()


class Work:
    """One piece of work that lasts.

    Args:
        user: on whose behalf; "": the broker's own.
        kind: of a fixed set of names.
    """

    __slots__ = ("asked_ns", "kind", "seated", "user")

    def __init__(self, user: str, kind: str) -> None:
        self.user = user
        self.kind = kind
        self.seated = False
        self.asked_ns = -1  # since when it has waited for its turn; -1: it does not wait


class Turn(NamedTuple):
    """A work whose turn it is: how long it has waited for that, and how long its slice may be."""

    work: Work
    waited_ns: int
    slice_ns: int


class FairShare:
    """Divides the loop's time among works; see the module.

    Args:
        percent: of the time, for all works together while calls are answered beside them.
        running_max: works of one user that take turns.
        waiting_max: works of one user beyond those.
    """

    def __init__(self, percent: int, running_max: int, waiting_max: int) -> None:
        self.refused_count = 0
        self._percent = percent
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._users: dict[str, User] = {}
        self._line: Line[User] = Line()
        self._forget_at = USERS_KEPT
        self._ready = 0
        self._loaded_until_ns = -1
        self._left_ns = -SLICE_NS  # of the share; below 0: used before its time
        self._counted_ns = 0  # up to here the share was counted

    @property
    def wanted(self) -> bool:
        """Return whether any seated work waits for a turn."""
        return self._ready > 0

    @property
    def waiting_count(self) -> int:
        """Count the works that wait for their turn, or until fewer of their user run."""
        return self._ready + sum(len(user.waiting) for user in self._users.values())

    @property
    def begun_count(self) -> int:
        """Count the works that have begun and not ended."""
        return sum(user.begun for user in self._users.values())

    def begin(self, work: Work) -> None:
        """Count a work as begun.

        Raises:
            TooManyRequestsError: its user has as many as may run and wait.
        """
        user = self._users.get(work.user)
        if user is None:
            if len(self._users) >= self._forget_at:
                self._forget()
            user = self._users[work.user] = User(work.user)
        if work.user and user.begun >= self._running_max + self._waiting_max:
            self.refused_count += 1
            raise TooManyRequestsError(
                f"{user.begun} lasting calls of one user are open: at most {self._running_max} "
                f"run (background.running_per_user_max) and {self._waiting_max} wait "
                "(background.waiting_per_user_max)"
            )
        user.begun += 1

    def end(self, work: Work) -> None:
        """Count a begun work as over; it waits for no turn any more."""
        self.rest(work)
        self._users[work.user].begun -= 1

    def ask(self, work: Work, now_ns: int) -> None:
        """Have a begun work wait for its turn."""
        assert work.asked_ns < 0, "it waits already"
        work.asked_ns = now_ns
        user = self._users[work.user]
        if not work.seated:
            if work.user and user.seated >= self._running_max:
                user.waiting.append(work)
                return
            work.seated = True
            user.seated += 1
        self._queue(user, work)

    def rest(self, work: Work) -> None:
        """Take a work out until it asks again; another of its user may take turns meanwhile."""
        user = self._users[work.user]
        if work.asked_ns >= 0:
            work.asked_ns = -1
            if not work.seated:
                user.waiting.remove(work)
                return
            user.kinds[work.kind].ready.remove(work)  # an empty kind leaves the line when taken
            user.ready -= 1
            self._ready -= 1
        if work.seated:
            work.seated = False
            user.seated -= 1
            if user.waiting:
                after = user.waiting.popleft()
                after.seated = True
                user.seated += 1
                self._queue(user, after)

    def foreground(self, now_ns: int) -> None:
        """Note that a call was answered at once: for a while, the share counts."""
        if now_ns > self._loaded_until_ns:
            self._left_ns = -SLICE_NS  # calls first
            self._counted_ns = now_ns
        self._loaded_until_ns = now_ns + LOADED_NS

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the next slice has to wait; 0: it may begin."""
        if now_ns > self._loaded_until_ns:
            return 0
        earned_ns = (now_ns - self._counted_ns) * self._percent // 100
        self._counted_ns += earned_ns * 100 // self._percent
        self._left_ns = min(TURN_NS_MAX, self._left_ns + earned_ns)
        if self._left_ns > 0:
            return 0
        wait_ns = (1 - self._left_ns) * 100 // self._percent + 1
        return min(wait_ns, self._loaded_until_ns - now_ns + 1)

    def take(self, now_ns: int) -> Turn | None:
        """Return the next turn; None: no work waits, or the share is used up at `now_ns`.

        `charge` the returned work before taking the next turn.
        """
        if not self._ready or self.wait_ns(now_ns) > 0:
            return None
        slice_ns = SLICE_NS
        if now_ns <= self._loaded_until_ns:
            slice_ns = max(slice_ns, self._left_ns)
        user = self._line.take()
        while not user.ready:  # its works rested
            user = self._line.take()
        kind = user.line.take()
        while not kind.ready:
            kind = user.line.take()
        user.in_line = kind.in_line = True  # until `charge`: who asks meanwhile is put in then
        self._line.served_ns = user.charged_ns
        user.line.served_ns = kind.charged_ns
        work = kind.ready.popleft()
        waited_ns = now_ns - work.asked_ns
        work.asked_ns = -1
        user.ready -= 1
        self._ready -= 1
        return Turn(work, waited_ns, slice_ns)

    def charge(self, work: Work, used_ns: int) -> None:
        """Charge the work that was taken last with the time of its slice."""
        user = self._users[work.user]
        kind = user.kinds[work.kind]
        self._left_ns -= used_ns
        user.charged_ns += used_ns
        kind.charged_ns += used_ns
        user.in_line = kind.in_line = False
        if kind.ready:
            user.line.join(kind)
        if user.ready:
            self._line.join(user)

    def _queue(self, user: User, work: Work) -> None:
        kind = user.kinds.get(work.kind)
        if kind is None:
            kind = user.kinds[work.kind] = Kind()
        kind.ready.append(work)
        user.ready += 1
        self._ready += 1
        user.line.join(kind)
        self._line.join(user)

    def _forget(self) -> None:
        """Remove users without work or debt; if no work waits at all, debts do not count."""
        for name, user in list(self._users.items()):
            owes = user.charged_ns > self._line.served_ns and self._ready
            if not user.begun and not user.in_line and not owes:
                del self._users[name]
        self._forget_at = max(USERS_KEPT, 2 * len(self._users))
