"""Marks of what was done, in Redis: taken for a while by who begins, and kept once it is done.

absent ──begin──→ in hand ──the block is left in order──→ done ──`keep` is over──→ absent
                     ├──the block raises──→ absent
                     └──`lease` is over: its worker died──→ absent

A mark in hand holds its owner's token, so that nobody gives up what another one has taken since.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

from latermq._values import arguments
from latermq.idempotency._keys import check_key

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    AnyRedis: TypeAlias = redis.Redis | redis.asyncio.Redis

log = logging.getLogger("latermq.client")

LEASE: Final = timedelta(minutes=1)
KEEP: Final = timedelta(days=14)  # as long as a broker keeps dead letters, unless it is told
PREFIX: Final = "latermq:done"
NO_EVICTION: Final = "noeviction"
DONE: Final = "done"  # no token is this
_MS: Final = timedelta(milliseconds=1)

# Who asks again with its own token has it: the answer to its first call was lost.
_BEGIN: Final = """
local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[1] then return {there, redis.call('PTTL', KEYS[1])} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'', 0}
"""
_GIVE_UP: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class InHandError(Exception):
    """Another worker has begun this work, and may finish it: ask again later.

    Say `give_back_on=InHandError` at a listener: its message comes again then, uncounted.

    Fields:
        key: what is being done.
        retry_in: when the other's lease is over, if it died; a listener's message comes again then.
    """

    def __init__(self, key: str, retry_in: timedelta) -> None:
        super().__init__(
            f"{key} is in the hands of another worker, for {retry_in.total_seconds():.1f} s unless "
            "it finishes before"
        )
        self.key = key
        self.retry_in = retry_in


class _Claim(NamedTuple):
    """What one caller says of one key."""

    key: str
    name: str  # in Redis
    token: str
    began_s: float  # by the monotonic clock


class RedisDone:
    """What one consumer group has done, in marks that Redis keeps.

    Redis has no transaction with your database, and none with the service that you call: a worker
    that dies after its work, and before the end of its block, leaves a mark that is in hand; when
    its lease is over the work is done again. So are those whose marks Redis loses: by eviction, by
    a restart without its files, or by a fail-over to a replica that had not got them.

    Args:
        redis: of redis-py, `redis.asyncio.Redis` for `once_async`, `redis.Redis` for `once`;
            Redis 6.2 or newer.
        group: whose work it is: another group does its own work with the same message.
        lease: how long others leave alone what is begun; longer than the work ever takes, of a
            listener longer than its `timeout`.
        keep: how long it is remembered that something is done: as long as its message can come
            again, dead letters that are redriven included.
        prefix: what the names of marks begin with: `prefix:group:key`, where a colon or a percent
            sign of the group and the key is written as in a URL.
    """

    def __init__(
        self,
        redis: "AnyRedis",
        group: str,
        *,
        lease: timedelta = LEASE,
        keep: timedelta = KEEP,
        prefix: str = PREFIX,
    ) -> None:
        arguments.name_of("group", group)
        arguments.name_of("prefix", prefix)
        for name, value in (("lease", lease), ("keep", keep)):
            arguments.duration(name, value)
            if value < _MS:
                raise ValueError(f"{name} must be a millisecond at least, not {value}")
        self.group = group
        self._redis: Any = redis
        self._waits = inspect.iscoroutinefunction(redis.execute_command)
        self._prefix = prefix
        self._looked = False
        self._lease_ms = lease // _MS
        self._keep_ms = keep // _MS

    @contextmanager
    def once(self, key: str) -> Iterator[bool]:
        """Enclose work that is to be done once: True: do it; False: it is done already.

        Left in order, the block has been done; when it raises, whoever comes next may do it.

        Args:
            key: the message's id; or what the work is about, such as the order's number, which is
                the same however often it was sent.
        Raises:
            InHandError: another worker is at it.
            redis.RedisError: at the end, too: then the work was done, and is done again when its
                message comes again after the lease.
        """
        claim, first = self._claim(key, waits=False), None
        try:
            if not self._looked:
                with self._looking():
                    self._looks(self._redis.info("memory"))
            first = self._may_begin(claim, self._redis.eval(_BEGIN, 1, *self._begin(claim)))
            yield first
        except BaseException as raised:
            if first is not None or not isinstance(raised, InHandError):
                try:
                    self._redis.eval(_GIVE_UP, 1, claim.name, claim.token)
                except Exception as error:  # noqa: BLE001  what the work raised says more
                    self._not_given_up(claim, error)
            raise
        if not first:
            return
        self._finished(claim, self._redis.set(claim.name, DONE, px=self._keep_ms, get=True))

    @asynccontextmanager
    async def once_async(self, key: str) -> AsyncIterator[bool]:
        """Do as `once`, for redis-py's asyncio."""
        claim, first = self._claim(key, waits=True), None
        try:
            if not self._looked:
                with self._looking():
                    self._looks(await self._redis.info("memory"))
            first = self._may_begin(claim, await self._redis.eval(_BEGIN, 1, *self._begin(claim)))
            yield first
        except BaseException as raised:
            if first is not None or not isinstance(raised, InHandError):
                try:
                    await asyncio.shield(self._redis.eval(_GIVE_UP, 1, claim.name, claim.token))
                except Exception as error:  # noqa: BLE001  what the work raised says more
                    self._not_given_up(claim, error)
            raise
        if not first:
            return
        self._finished(claim, await self._redis.set(claim.name, DONE, px=self._keep_ms, get=True))

    def _claim(self, key: str, *, waits: bool) -> _Claim:
        check_key(key)
        if waits is not self._waits:
            wanted = "once_async" if self._waits else "once"
            raise TypeError(f"this client is {type(self._redis)!r}: use `{wanted}` with it")
        name = f"{self._prefix}:{_quoted(self.group)}:{_quoted(key)}"
        return _Claim(key, name, uuid4().hex, monotonic())

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Enclose the question: who may not ask, or gets no answer, goes on without it."""
        self._looked = True
        try:
            yield
        except Exception as error:  # noqa: BLE001  of any client, by any rights
            log.debug("Redis does not say whether it drops marks: %s", error)

    def _looks(self, memory: Mapping[str, Any]) -> None:
        """Warn of a Redis that drops marks when it is full."""
        policy = _text(memory.get("maxmemory_policy"))
        if memory.get("maxmemory") and policy != NO_EVICTION:
            log.warning(
                "Redis drops marks of %s when its memory is full, and what they mark is done "
                "again: maxmemory-policy is %s, and should be %s",
                self.group, policy, NO_EVICTION, extra={"policy": policy},
            )  # fmt: skip

    def _begin(self, claim: _Claim) -> tuple[str, str, int]:
        return claim.name, claim.token, self._lease_ms

    def _may_begin(self, claim: _Claim, answer: Any) -> bool:
        """Tell whether the claim holds; False: it is done. Raises InHandError: another's holds."""
        there, left_ms = _text(answer[0]), int(answer[1])
        if there == DONE:
            return False
        if there:
            raise InHandError(claim.key, (left_ms if left_ms > 0 else self._lease_ms) * _MS)
        return True

    def _finished(self, claim: _Claim, before: Any) -> None:
        """Warn of work that took longer than its lease: nothing kept others from it.

        While the lease lasts a mark that says "done" is this call's own, sent again by the client
        of Redis because the answer was lost.
        """
        mark = _text(before)
        within = monotonic() - claim.began_s < self._lease_ms / 1000
        if mark != claim.token and not (mark == DONE and within):
            log.warning(
                "the lease of %s for %s was over before its work, which may have been done by "
                "another worker, too: have a lease that is longer than %g s",
                claim.key, self.group, self._lease_ms / 1000, extra={"key": claim.key},
            )  # fmt: skip

    def _not_given_up(self, claim: _Claim, error: Exception) -> None:
        log.warning(
            "%s for %s is tried again when its lease of %g s is over, for Redis was not told of "
            "its failure: %s", claim.key, self.group, self._lease_ms / 1000, error,
            extra={"key": claim.key, "reason": str(error)},
        )  # fmt: skip


def _quoted(name: str) -> str:
    """Escape the separator: whatever a prefix is, the last two colons end it and the group, so of
    no two triples of prefix, group and key the names are equal."""
    return name.replace("%", "%25").replace(":", "%3A")


def _text(value: Any) -> str:
    """Read what Redis answered, of clients that decode and of those that do not."""
    return value.decode() if isinstance(value, bytes) else str(value or "")
