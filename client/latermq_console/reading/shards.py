"""The shards of a cluster side by side: which answer, what each has and does.

The console's user asks every shard; one that is silent is shown as silent, and holds up nobody for
longer than ANSWER_S. Of a broker that is alone, the answers are its own.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Container
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from latermq.admin import Method, read_endpoints
from latermq.errors import (
    GroupNotFoundError,
    LaterMQError,
    NotFoundError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from latermq_console import clock
from latermq_console.reading.desk import LOOK_S, Desk
from latermq_console.reading.jobs import words_of
from latermq_proto.latermq.v1 import broker_pb2, cluster_pb2

ANSWER_S: Final = 3.0
KNOWN_S: Final = 60.0  # a cluster has the shards it was made with
NOT_THERE: Final = (GroupNotFoundError, NotFoundError, TopicNotFoundError)

Ask = Callable[[int], Message | None]  # what a shard is asked; None: nothing


class ShardState(NamedTuple):
    """A shard when it was last asked. `broker` is None of one that did not answer: see `error`."""

    number: int
    name: str
    address: str
    broker: broker_pb2.Broker | None
    error: str
    sent_per_s: float  # since the look before; -1: there was none
    done_per_s: float


class Parts(NamedTuple):
    """What the shards answered, by number, and why those that are silent are.

    Fields:
        several: there is more than one, so that it matters whose something is.
        unheard: the numbers of the silent ones.
    """

    answers: list[tuple[int, Any]]
    silent: list[str]
    several: bool
    unheard: list[int]


class Listing(NamedTuple):
    """A page of a list of all shards: rows with the shard each is of. `token` leads to the next."""

    rows: list[tuple[int, Any]]
    token: str
    silent: list[str]
    several: bool


class ShardLook:
    """Asks the shards of a cluster for one session of the console; to be closed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._others: dict[str, Desk] = {}
        self._known: tuple[int, list[cluster_pb2.ClusterShard]] = (0, [])
        self._known_at_s = -KNOWN_S
        self._states: list[ShardState] = []
        self._at_s = -LOOK_S
        self._turn = asyncio.Lock()

    async def states(self) -> list[ShardState]:
        """Return all shards by number, asked LOOK_S ago at most; [] of a broker that is alone.

        Raises:
            LaterMQError: the broker that the console was given does not answer.
        """
        async with self._turn:  # tabs that ask at once share a look
            now_s = clock.monotonic_s()
            if now_s - self._at_s >= LOOK_S:
                own, shards = await self._shards()
                before = {state.number: state for state in self._states}
                since_s = now_s - self._at_s
                self._states = await asyncio.gather(
                    *(self._ask(each, self._desk_of(each, own), before.get(each.number), since_s)
                      for each in shards)
                )  # fmt: skip
                self._at_s = now_s
            return self._states

    def sweep(self) -> None:
        """Forget answers of other shards that are too old for anybody."""
        for desk in self._others.values():
            desk.sweep()

    async def desks(self) -> dict[int, Desk]:
        """Return the way to each shard, by number; of a broker that is alone its own."""
        own, shards = await self._shards()
        return {each.number: self._desk_of(each, own) for each in shards} or {own: self._desk}

    async def each(self, method: Method[Any], ask: Ask, *, age_s: float = LOOK_S) -> Parts:
        """Look at every shard that something is asked of. Raises LaterMQError: as `every`."""
        requests = {number: ask(number) for number in await self.desks()}
        asked = {number: request for number, request in requests.items() if request is not None}
        return await self.every(
            lambda number, desk: desk.look(method, asked[number], age_s=age_s), among=asked
        )

    async def every(
        self, ask: Callable[[int, Desk], Awaitable[Any]], *, among: Container[int] | None = None
    ) -> Parts:
        """Ask every shard at once; a shard that has no such thing gives no answer.

        Args:
            among: those that are asked; None: all.
        Raises:
            LaterMQError: one refuses, none has it, or none answers.
        """
        desks = await self.desks()
        several = len(desks) > 1
        numbers = [number for number in desks if among is None or number in among]

        async def answered(number: int) -> Any:
            try:
                async with asyncio.timeout(ANSWER_S if several else None):
                    return await ask(number, desks[number])
            except LaterMQError as error:
                return error
            except TimeoutError:
                return UnavailableError(f"no answer within {ANSWER_S:.0f} s")

        given = await asyncio.gather(*map(answered, numbers))
        answers, silent, failures = [], [], list[LaterMQError]()
        unheard: list[int] = []
        for number, answer in zip(numbers, given, strict=True):
            if not isinstance(answer, LaterMQError):
                answers.append((number, answer))
                continue
            if isinstance(answer, RequestError) and not isinstance(answer, NOT_THERE):
                raise answer
            failures.append(answer)
            if not isinstance(answer, NOT_THERE):
                silent.append(f"shard {number}: {words_of(answer)}")
                unheard.append(number)
        if failures and not answers:  # first that it may be where nobody answers
            raise min(failures, key=lambda error: isinstance(error, NOT_THERE))
        return Parts(answers, silent, several, unheard)

    async def listed(
        self, method: Method[Any], request: Any, items: str, order: Callable[[Any], Any],
        *, age_s: float = LOOK_S,
    ) -> Listing:  # fmt: skip
        """Return a page of a list: of each shard as many as `request` asks of one.

        Args:
            request: its page_token is a Listing's.
            items: the answer's field that has them.
            order: by which each shard lists them.
        Raises:
            LaterMQError: as `each`.
        """
        after = _tokens(request.page_token)

        def ask(number: int) -> Message | None:
            if after and number not in after:  # it had no more
                return None
            own = type(request)()
            own.CopyFrom(request)
            own.page_token = after.get(number, "")
            return own  # type: ignore[no-any-return]

        parts = await self.each(method, ask, age_s=age_s)
        rows = [(number, each) for number, answer in parts.answers
                for each in getattr(answer, items)]  # fmt: skip
        if parts.several:
            rows.sort(key=lambda row: order(row[1]))
        more = {number: answer.next_page_token for number, answer in parts.answers
                if answer.next_page_token}  # fmt: skip
        more |= {number: after.get(number, "") for number in parts.unheard}  # asked again
        return Listing(rows, json.dumps(more) if more else "", parts.silent, parts.several)

    async def close(self) -> None:
        """Close the ways to the other shards; whoever asks still is led to no other."""
        self._known, self._known_at_s = (0, []), math.inf
        await asyncio.gather(*(desk.close() for desk in self._others.values()))

    async def _shards(self) -> tuple[int, list[cluster_pb2.ClusterShard]]:
        """Return which shard the console was given, and all of them; none of a broker alone.

        While that one is silent, they are those that it last told of.
        """
        if clock.monotonic_s() - self._known_at_s < KNOWN_S:
            return self._known
        admin = self._desk.admin
        request = cluster_pb2.DescribeClusterRequest(endpoints=admin.access_point)
        try:
            async with asyncio.timeout(ANSWER_S):
                cluster = await self._desk.look(admin.cluster.DescribeCluster, request)
        except UnsupportedError:
            self._known = 0, []
        except (LaterMQError, TimeoutError):
            if not self._known[1]:
                return self._known  # and is asked anew
        else:
            several = len(cluster.shards) > 1
            self._known = (cluster.shard, list(cluster.shards)) if several else (0, [])
        self._known_at_s = clock.monotonic_s()
        return self._known

    def _desk_of(self, shard: cluster_pb2.ClusterShard, own: int) -> Desk:
        if shard.number == own:
            return self._desk
        address = str(read_endpoints(shard.endpoints))
        if address not in self._others:
            self._others[address] = self._desk.another(address)
        return self._others[address]

    async def _ask(
        self, shard: cluster_pb2.ClusterShard, desk: Desk, before: ShardState | None,
        since_s: float,
    ) -> ShardState:  # fmt: skip
        broker, error, sent, done = None, "", -1.0, -1.0
        try:
            request = broker_pb2.GetBrokerRequest()
            answer = await desk.admin.call(
                desk.admin.brokers.GetBroker, request, timeout_s=ANSWER_S
            )
            broker = answer.broker
        except LaterMQError as failure:
            error = words_of(failure)
        then = before.broker if before is not None else None
        if broker is not None and then is not None and then.started_at_ms == broker.started_at_ms:
            sent = (broker.totals.messages_sent - then.totals.messages_sent) / since_s
            done = broker.totals.messages_acknowledged - then.totals.messages_acknowledged
            done /= since_s
        address = str(read_endpoints(shard.endpoints))
        return ShardState(shard.number, shard.name, address, broker, error, sent, done)


def _tokens(text: str) -> dict[int, str]:
    """Read where each shard's list goes on; {} of what is no token: at the beginning."""
    try:
        return {int(number): str(token) for number, token in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError):
        return {}
