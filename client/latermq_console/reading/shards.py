"""The shards of a cluster side by side: which answer, what each has and does.

The console's user asks every shard; one that is silent is shown as silent, and holds up nobody for
longer than ANSWER_S.
"""

import asyncio
from typing import Final, NamedTuple

from latermq.errors import LaterMQError
from latermq_console import clock
from latermq_console.reading.desk import LOOK_S, Desk
from latermq_console.reading.jobs import words_of
from latermq_proto.latermq.v1 import broker_pb2, cluster_pb2

ANSWER_S: Final = 3.0


class ShardState(NamedTuple):
    """A shard when it was last asked. `broker` is None of one that did not answer: see `error`."""

    number: int
    name: str
    address: str
    broker: broker_pb2.Broker | None
    error: str
    sent_per_s: float  # since the look before; -1: there was none
    done_per_s: float


class ShardLook:
    """Asks the shards of a cluster for one session of the console; to be closed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._desks: dict[str, Desk] = {}
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
                shards = await self._shards()
                before = {state.number: state for state in self._states}
                since_s = now_s - self._at_s
                self._states = await asyncio.gather(
                    *(self._ask(shard, before.get(shard.number), since_s) for shard in shards)
                )
                self._at_s = now_s
            return self._states

    async def close(self) -> None:
        await asyncio.gather(*(desk.close() for desk in self._desks.values()))

    async def _shards(self) -> list[cluster_pb2.ClusterShard]:
        admin = self._desk.admin
        request = cluster_pb2.DescribeClusterRequest(endpoints=admin.access_point)
        cluster, _ = await self._desk.tried(admin.cluster.DescribeCluster, request)
        return list(cluster.shards) if cluster is not None and len(cluster.shards) > 1 else []

    async def _ask(
        self, shard: cluster_pb2.ClusterShard, before: ShardState | None, since_s: float
    ) -> ShardState:
        at = shard.endpoints.addresses[0]
        address = f"[{at.host}]:{at.port}" if ":" in at.host else f"{at.host}:{at.port}"
        desk = self._desks.get(address)
        if desk is None:
            desk = self._desks[address] = self._desk.another(address)
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
        return ShardState(shard.number, shard.name, address, broker, error, sent, done)
