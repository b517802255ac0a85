"""This broker as one shard of several: what services ask of the cluster, answered."""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.cluster.forwarding import Forwarding, is_forwarded, rpc_of
from latermq_broker.cluster.mark import Mark
from latermq_broker.cluster.peers import Peers
from latermq_broker.cluster.placement import Placement, handle_of, parse_handle, shard_name
from latermq_broker.cluster.shard_endpoints import Addresses
from latermq_broker.config.config import Config
from latermq_broker.engine.state.model import Topic, TopicType
from latermq_broker.errors import ForbiddenError, InternalServerError
from latermq_broker.services.call.answers import ADMIN, MESSAGING, Caller, refusal_of, unary
from latermq_broker.services.call.handler import Call, Method, MethodTable
from latermq_broker.services.call.shards import ElsewhereError
from latermq_broker.services.registry import FILES
from latermq_proto.apache.rocketmq.v2 import definition_pb2

MASTER: Final = 0
SENT_ON: Final = (
    f"{MESSAGING}/SendMessage", f"{MESSAGING}/EndTransaction", f"{MESSAGING}/RecallMessage",
    f"{ADMIN}/AdminSendMessage",
)  # fmt: skip
CHANGES: Final = tuple(
    f"/latermq.v1.{name}"
    for name in (
        "Topics/CreateTopic", "Topics/AlterTopic", "Topics/DeleteTopic", "Groups/CreateGroup",
        "Groups/AlterGroup", "Groups/DeleteGroup", "Limits/SetLimit", "Limits/UnsetLimit",
        "Users/CreateUser", "Users/AlterUser", "Users/RotateUser", "Users/DeleteUser",
        "Users/GrantRights", "Users/RevokeRights",
    )
)  # fmt: skip


class Shard:
    """Shard `config.cluster.shard`; to be made inside a running event loop.

    Args:
        mark: of its directory.
    """

    def __init__(self, config: Config, mark: Mark) -> None:
        self._own = config.cluster.shard
        self._addresses = Addresses(config.cluster)
        self._peers = Peers(config)
        self._forwarding = Forwarding(self._peers, self._own)
        self._placement = Placement(len(config.cluster.shards), mark.pins)

    @property
    def files(self) -> Sequence[Any]:
        """List no modules: a shard has the RPCs that every broker has."""
        return ()

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
        kind = TopicType.MIXED if topic is None else topic.type
        home = self._placement.home_of_send(name, kind, ordered=ordered)
        if home is not None:
            self._require_own(home, call, f"the home of topic {name}")

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

    def around(self, methods: MethodTable) -> MethodTable:
        """Give the methods, those that may be another shard's to answer sent on to it."""
        around = self._forwarding.around
        sent_on = {path: around(methods[path], rpc_of(FILES, path)) for path in SENT_ON}
        not_yet = {path: _refused(path) for path in CHANGES}
        return methods | sent_on | not_yet

    async def close(self) -> None:
        """Call no other shard any more."""
        await self._peers.close()

    def _require_own(self, shard: int, call: Call, what: str) -> None:
        if shard == self._own:
            return
        if is_forwarded(call):
            raise InternalServerError(
                f"shard {shard} is {what}, says shard {self._own}, to which it was sent; the "
                "catalogue is being copied, try again"
            )
        raise ElsewhereError(shard)


def _refused(path: str) -> Method:
    """Make a method that refuses a change of the catalogue, of which each shard has its own."""
    rpc = rpc_of(FILES, path)
    refusal = refusal_of(rpc)

    def refuse(request: Message, caller: Caller) -> NoReturn:
        raise ForbiddenError(
            "the shards of a cluster cannot change topics, groups, limits and users yet: topics "
            "and groups are made on first use"
        )

    return unary(
        GetMessageClass(rpc.input_type), refuse, lambda status, _: refusal(status),
        client_id_required=False,
    )  # fmt: skip
