"""This broker as one shard of several: what services ask of the cluster, answered."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from latermq_broker.background.jobs import Background
from latermq_broker.cluster.catalogue_changes import (
    ALTER_TOPIC,
    CHANGES,
    keeping_places,
    spreading,
)
from latermq_broker.cluster.catalogue_copy import CatalogueCopy
from latermq_broker.cluster.catalogue_source import CatalogueSource
from latermq_broker.cluster.forwarding import Forwarding, rpc_of
from latermq_broker.cluster.mark import Mark, write_mark
from latermq_broker.cluster.metrics_label import labelled
from latermq_broker.cluster.peers import PeerError, Peers
from latermq_broker.cluster.placement import (
    FIRST,
    Placement,
    handle_of,
    parse_handle,
    shard_name,
)
from latermq_broker.cluster.shard_endpoints import Addresses
from latermq_broker.cluster.shard_headers import is_a_shards, is_forwarded, signature_headers
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Group, Topic, TopicType
from latermq_broker.errors import (
    BadRequestError,
    ForbiddenError,
    InternalServerError,
    RequestError,
    StoreError,
)
from latermq_broker.services.call.answers import ADMIN, MESSAGING, Caller, ok_status
from latermq_broker.services.call.handler import Call, Committer, MethodTable
from latermq_broker.services.clients.pushed_settings import push_settings
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.clients.shards import ElsewhereError
from latermq_broker.services.messaging.route import endpoints_of
from latermq_broker.services.registry import FILES
from latermq_broker.services.rpcs import methods_of, path_of
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import cluster_pb2, schedule_pb2

log = logging.getLogger("latermq.cluster")

MASTER: Final = 0
CLUSTER: Final = "Cluster"
COPY: Final = "/latermq.v1.Cluster/CopyCatalogue"
COPY_S_MAX: Final = 15.0  # longer than a copy waits for a change
ASK_AGAIN_S: Final = 0.5  # a shard 0 that does not answer
# No answer, no room for it; or what a newer version of shard 0 has, and this one cannot read.
NOT_COPIED: Final = (
    PeerError, DecodeError, StoreError, OSError, RequestError, LookupError, TypeError, ValueError
)  # fmt: skip
FIRST_COPY_S: Final = 2.0  # a shard that has a catalogue waits so long for a newer one
SENT_ON: Final = (
    f"{MESSAGING}/SendMessage", f"{MESSAGING}/EndTransaction", f"{MESSAGING}/RecallMessage",
    f"{ADMIN}/AdminSendMessage",
)  # fmt: skip


class Shard:
    """Shard `config.cluster.shard`; to be made inside a running event loop.

    Args:
        directory: its own, with the mark.
        is_new: its directory was made by this start: it needs a first copy of the catalogue.
    """

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        config: Config,
        directory: Path,
        mark: Mark,
        *,
        is_new: bool,
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._config = config
        self._directory = directory
        self._mark = mark
        self._is_new = is_new
        self._own = config.cluster.shard
        self._addresses = Addresses(config.cluster)
        self._peers = Peers(config)
        self._forwarding = Forwarding(self._peers, self._own)
        self._placement = Placement(len(config.cluster.shards), mark.pins)
        self._sessions: Sessions | None = None
        self._asking: asyncio.Task[None] | None = None
        self._copied = asyncio.Event()
        self._news = asyncio.Event()
        self._source: CatalogueSource | None = None
        self._copy: CatalogueCopy | None = None
        if self._own == FIRST:
            self._source = CatalogueSource(
                engine, committer, directory, mark.pins,
                shards=len(config.cluster.shards), has_users=config.auth.enabled,
            )  # fmt: skip
        else:
            self._copy = CatalogueCopy(
                engine, committer, directory, self._own, self._pin, self._tell_group,
                has_users=config.auth.enabled,
            )  # fmt: skip
        engine.limits.table.parts = self._placement.count

    @property
    def files(self) -> Sequence[Any]:
        """List the modules of the RPCs that only a cluster has."""
        return (cluster_pb2,)

    def brokers(
        self, topic: Topic, asked: definition_pb2.Endpoints
    ) -> Sequence[definition_pb2.Broker]:
        """List the shards that have queues of a topic, as who asked by `asked` reaches them."""
        endpoints = self._addresses.endpoints(asked)
        return [
            definition_pb2.Broker(name=shard_name(number), id=MASTER, endpoints=endpoints[number])
            for number in self._placement.shards(topic.name, topic.type)
        ]

    def require_home(self, name: str, topic: Topic | None, call: Call, *, ordered: bool) -> None:
        """Check that what is sent to a topic is stored here; see `Shards`."""
        home = self.elsewhere(name, topic, ordered=ordered)
        if home is not None:
            self._require_own(home, call, f"the home of topic {name}")

    def elsewhere(self, name: str, topic: Topic | None, *, ordered: bool) -> int | None:
        """Give the shard that has all of what is so sent to a topic; None: this one may."""
        kind = TopicType.MIXED if topic is None else topic.type
        home = self._placement.home_of_send(name, kind, ordered=ordered)
        return None if home == self._own else home

    def handle(self, handle: str) -> str:
        """Name this shard in a handle of its own."""
        return handle_of(handle, self._own)

    def own_handle(self, handle: str, call: Call) -> str:
        """Give a handle as this shard made it; see `Shards`."""
        own, shard = parse_handle(handle)
        if shard >= self._placement.count:
            return handle  # nobody's: refused where it is read
        self._require_own(shard, call, "where the handle's message is")
        return own

    def around(
        self, methods: MethodTable, sessions: Sessions, background: Background
    ) -> MethodTable:
        """Give the methods, those that may be another shard's to answer sent on to it."""
        self._sessions = sessions
        forwarding, source = self._forwarding, self._source
        table = dict(methods)
        for path in SENT_ON:
            table[path] = forwarding.around(methods[path], rpc_of(FILES, path))
        alter = keeping_places(
            methods[ALTER_TOPIC], self._engine.catalog, rpc_of(FILES, ALTER_TOPIC)
        )
        for path in CHANGES:
            method = alter if path == ALTER_TOPIC else methods[path]
            table[path] = (
                forwarding.always(FIRST, method, rpc_of(FILES, path))
                if source is None
                else spreading(method, source)
            )
        for rpc in schedule_pb2.DESCRIPTOR.services_by_name["Schedules"].methods:
            if self._own != FIRST:  # which has them all
                table[path_of(rpc)] = forwarding.always(FIRST, methods[path_of(rpc)], rpc)
        copying = NotTheSource() if source is None else ForShards(source, self._config.auth)
        handlers = (self, copying)
        table |= methods_of(cluster_pb2.DESCRIPTOR.services_by_name[CLUSTER], handlers, background)
        return table

    def describe_cluster(
        self, request: cluster_pb2.DescribeClusterRequest, caller: Caller
    ) -> cluster_pb2.DescribeClusterResponse:
        """Answer DescribeCluster of cluster.proto."""
        asked = request.endpoints
        endpoints = self._addresses.endpoints(
            asked if asked.addresses else endpoints_of(caller.call.local)
        )
        return cluster_pb2.DescribeClusterResponse(
            status=ok_status(),
            shard=self._own,
            shards=[
                cluster_pb2.ClusterShard(number=number, name=shard_name(number), endpoints=each)
                for number, each in enumerate(endpoints)
            ],
        )

    async def begin(self, stop: asyncio.Event) -> None:
        """Wait, before this shard serves, for the catalogue; at most until `stop` is set."""
        if self._copy is None:
            return
        self._asking = asyncio.create_task(self._keep_copying(self._copy), name="latermq catalogue")
        waits = [asyncio.create_task(event.wait()) for event in (self._copied, stop)]
        timeout = None if self._is_new else FIRST_COPY_S
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def on_second(self) -> None:
        """Look for what first use has made, here or in shard 0."""
        if self._source is not None:
            self._source.on_second()
        elif self._copy is not None and self._copy.has_news():
            self._news.set()

    def page(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield a page of metrics with this shard in every sample."""
        return labelled(pieces, self._own)

    def drain(self) -> None:
        """Answer what other shards wait for: this one goes down."""
        if self._source is not None:
            self._source.drain()

    async def close(self) -> None:
        """Call no other shard any more."""
        if self._asking is not None:
            self._asking.cancel()
        await self._peers.close()

    async def _keep_copying(self, copy: CatalogueCopy) -> None:
        said: type[Exception] | None = None  # what is the matter, as it was told
        while True:
            self._news.clear()
            try:
                answer = await self._answer(copy.request())
                if answer is None:
                    continue  # there are news: asked again, they are told
                if await copy.take(answer):
                    self._copied.set()
                    said = None
                    continue
            except NOT_COPIED as error:
                if said is not type(error):
                    log.warning("the catalogue is not copied", extra={"reason": repr(error)})
                said = type(error)
            await asyncio.sleep(ASK_AGAIN_S)

    async def _answer(
        self, request: cluster_pb2.CopyCatalogueRequest
    ) -> cluster_pb2.CopyCatalogueResponse | None:
        """Have shard 0 answer, when it has something new; None: we have.

        Raises:
            PeerError, DecodeError: no answer, or none that can be read.
        """
        wall_ms = self._engine.wall.at(self._committer.now_ms())
        headers = signature_headers(self._config.auth, wall_ms)
        data = request.SerializeToString()
        call = asyncio.create_task(self._peers.call(FIRST, COPY, data, headers, COPY_S_MAX))
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((call, news), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return None
            return cluster_pb2.CopyCatalogueResponse.FromString(call.result())
        finally:
            news.cancel()
            call.cancel()

    def _pin(self, pins: Mapping[str, int]) -> None:
        """Take over the homes that are not by name."""
        if dict(pins) != dict(self._mark.pins):
            mark = Mark(self._mark.shard, self._mark.shards, dict(pins))
            write_mark(self._directory, mark)  # first: if it fails, the next copy tries again
            self._mark = mark
            self._placement = Placement(self._placement.count, self._mark.pins)

    def _tell_group(self, name: str, group: Group | None) -> None:
        """Tell the consumers of a group that it was changed."""
        if self._sessions is not None:
            push_settings(self._sessions, name, group, self._config)

    def _require_own(self, shard: int, call: Call, what: str) -> None:
        if shard == self._own:
            return
        if is_forwarded(call):
            raise InternalServerError(
                f"shard {shard} is {what}, says shard {self._own}, to which it was sent; the "
                "catalogue is being copied, try again"
            )
        raise ElsewhereError(shard)


class ForShards:
    """Answers CopyCatalogue to shards alone: it has the secrets of all users."""

    def __init__(self, source: CatalogueSource, auth: AuthConfig) -> None:
        self._source = source
        self._auth = auth

    async def copy_catalogue(
        self, request: cluster_pb2.CopyCatalogueRequest, caller: Caller
    ) -> cluster_pb2.CopyCatalogueResponse:
        """Answer CopyCatalogue of cluster.proto. Raises ForbiddenError: no shard made the call."""
        if not is_a_shards(caller.call, self._auth):
            raise ForbiddenError("only shards copy the catalogue: it has the secrets of all users")
        return await self._source.copy_catalogue(request, caller)


class NotTheSource:
    """Answers CopyCatalogue where the catalogue is not decided."""

    def copy_catalogue(
        self, request: cluster_pb2.CopyCatalogueRequest, caller: Caller
    ) -> cluster_pb2.CopyCatalogueResponse:
        """Refuse it. Raises BadRequestError."""
        raise BadRequestError("shard 0 has the catalogue that others copy")
