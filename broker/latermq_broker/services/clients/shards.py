"""What services ask of the cluster, where the broker is one shard of several.

A broker that is alone has none of it: services are given None, and go on as if it did not exist.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from latermq_broker.background.jobs import Background
from latermq_broker.engine.state.model import Topic
from latermq_broker.services.call.handler import Call, CallAborted, MethodTable
from latermq_broker.services.clients.session import Sessions
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2


class ElsewhereError(CallAborted):
    """The call is another shard's to answer; `around` has it answered there."""

    def __init__(self, shard: int) -> None:
        super().__init__(GrpcCode.UNAVAILABLE, f"shard {shard} answers this call")
        self.shard = shard


class Shards(Protocol):
    """A cluster, as one of its shards sees it."""

    @property
    def files(self) -> Sequence[Any]:
        """Return the modules of the RPCs that only a cluster has."""

    def brokers(
        self, topic: Topic, asked: definition_pb2.Endpoints
    ) -> Sequence[definition_pb2.Broker]:
        """List the shards that have queues of a topic, as who asked by `asked` reaches them."""

    def require_home(self, name: str, topic: Topic | None, call: Call, *, ordered: bool) -> None:
        """Check that what is sent to a topic is stored here.

        Args:
            topic: None: not known here yet.
            ordered: messages of message groups, or with a dedup id, which have one home in each
                topic.

        Raises:
            ElsewhereError: it has a home, and that is another shard.
            InternalServerError: a shard that forwarded it takes this one for its home.
        """

    def elsewhere(self, name: str, topic: Topic | None, *, ordered: bool) -> int | None:
        """Give the shard that has all of what is so sent to a topic; None: this one may."""

    def handle(self, handle: str) -> str:
        """Name this shard in a recall handle or a transaction id of its own; "" stays so."""

    def own_handle(self, handle: str, call: Call) -> str:
        """Give a handle as this shard made it. Raises ElsewhereError: it is another shard's."""

    def around(
        self, methods: MethodTable, sessions: Sessions, background: Background
    ) -> MethodTable:
        """Give a table of methods that answer for the whole cluster where they must."""

    async def begin(self, stop: asyncio.Event) -> None:
        """Wait for what the shard needs before it serves; at most until `stop` is set."""

    def on_second(self) -> None:
        """Do what is due; called about once a second."""

    def page(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield a page of metrics with this shard in every sample."""

    def drain(self) -> None:
        """Answer what other shards wait for: this one goes down."""

    async def close(self) -> None:
        """Call no other shard any more."""
