"""Who is signed in: sessions, kept here and named by a cookie that says nothing else.

Bounded in number, for all and for each user, in age and in idleness. A cookie's text is kept as a
hash only.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from latermq_console import clock
from latermq_console.reading.desk import Desk
from latermq_console.reading.letters import ShelfRoom, Shelves
from latermq_console.reading.shards import ShardLook

SESSIONS_MAX: Final = 500
SESSIONS_PER_USER_MAX: Final = 50  # with users; without, all are nobody's
AGE_S_MAX: Final = 12 * 3600.0
IDLE_S_MAX: Final = 3600.0
NOTICES_MAX: Final = 5
NOTICE_CHARACTERS_MAX: Final = 2_000
TOKEN_BYTES: Final = 32


class Session:
    """One browser that is signed in, or that need not be.

    What was read with its rights belongs to it, so that nobody else comes by it: a page may go on
    after its session has ended.
    """

    __slots__ = ("came_back", "csrf", "desk", "made_s", "notices", "seen_s", "shards", "shelves")

    def __init__(self, desk: Desk, now_s: float, room: ShelfRoom | None = None) -> None:
        self.desk = desk
        self.shards = ShardLook(desk)
        self.shelves = Shelves(room)
        self.came_back = False  # a request had its cookie
        self.csrf = secrets.token_urlsafe(TOKEN_BYTES)
        self.made_s = self.seen_s = now_s
        self.notices: list[tuple[str, str]] = []  # (kind, text), each shown once

    @property
    def user(self) -> str:
        """Return the access key; "" where the broker asks nobody for a name."""
        return self.desk.access_key

    def tell(self, kind: str, text: str) -> None:
        """Show this on the next page: kind is good, bad or note."""
        self.notices = [*self.notices, (kind, text[:NOTICE_CHARACTERS_MAX])][-NOTICES_MAX:]

    def take_notices(self) -> list[tuple[str, str]]:
        """Return what there is to show, once."""
        notices, self.notices = self.notices, []
        return notices


class Sessions:
    """`on_end` hears of each session that ended, by whatever way."""

    def __init__(self, on_end: Callable[[Session], None]) -> None:
        self._open: OrderedDict[bytes, Session] = OrderedDict()  # the longest idle first
        self._room = ShelfRoom()
        self._on_end = on_end

    def __len__(self) -> int:
        return len(self._open)

    def open(self, desk: Desk) -> tuple[str, Session]:
        """Begin a session; return the cookie's value with it."""
        self.sweep()
        if desk.access_key:
            own = [key for key, each in self._open.items() if each.user == desk.access_key]
            for key in own[: max(0, len(own) + 1 - SESSIONS_PER_USER_MAX)]:
                self._end(key)
        while len(self._open) >= SESSIONS_MAX:
            # Where the broker has no users each request without a cookie begins a session.
            never = (key for key, each in self._open.items() if not each.came_back)
            self._end(next(never, next(iter(self._open))))
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        session = self._open[_hash(cookie)] = Session(desk, clock.monotonic_s(), self._room)
        return cookie, session

    def get(self, cookie: str, *, person: bool = True) -> Session | None:
        """Return the session of a cookie, if it still lives.

        Args:
            person: it is no longer idle then; a page that keeps itself fresh is nobody's deed.
        """
        key = _hash(cookie)
        session = self._open.get(key)
        if session is None:
            return None
        now_s = clock.monotonic_s()
        if _is_over(session, now_s):
            self._end(key)
            return None
        session.came_back = True
        if person:
            session.seen_s = now_s
            self._open.move_to_end(key)
        return session

    def peek(self, cookie: str) -> Session | None:
        """Return the session of a cookie, however old; it stays as idle as it was."""
        return self._open.get(_hash(cookie))

    def end(self, cookie: str) -> None:
        """End the session of a cookie, if there is one."""
        if _hash(cookie) in self._open:
            self._end(_hash(cookie))

    def sweep(self) -> None:
        """End those that are too old or were idle for too long."""
        now_s = clock.monotonic_s()
        for key in [key for key, each in self._open.items() if _is_over(each, now_s)]:
            self._end(key)

    def forget_old_answers(self) -> None:
        """Drop answers of the broker that no page wants any more."""
        for each in self._open.values():
            each.desk.sweep()
            each.shards.sweep()

    def of_user(self, user: str) -> list[Session]:
        return [each for each in self._open.values() if each.user == user]

    def end_all(self) -> None:
        for key in list(self._open):
            self._end(key)

    def _end(self, key: bytes) -> None:
        self._on_end(self._open.pop(key))


class FormSeal:
    """Ties a form to the browser it was sent to, before there is a session: for signing in."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(TOKEN_BYTES)

    def token(self, nonce: str) -> str:
        return hmac.digest(self._key, nonce.encode(), "sha256").hex()

    def fits(self, nonce: str, token: str) -> bool:
        return bool(nonce) and hmac.compare_digest(self.token(nonce).encode(), token.encode())


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()


def _is_over(session: Session, now_s: float) -> bool:
    return now_s - session.made_s > AGE_S_MAX or now_s - session.seen_s > IDLE_S_MAX
