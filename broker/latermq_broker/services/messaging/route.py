"""QueryRoute and QueryAssignment: where a topic's queues are.

A broker that is alone answers itself, under the very endpoints the client asked with: clients
compare endpoints literally, and behind a NAT or in Docker no other address is reachable. One shard
of several answers all shards that have queues of the topic.
Clients ask for the route before they send or receive, so an unknown topic has the route that it
will have, when auto-create is on. It is made by the send or the receive that follows: one that is
refused makes none.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from latermq_broker.config.addresses import listen_address
from latermq_broker.engine.state.model import Topic, TopicType
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.handler import Call
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.shards import Shards
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

MASTER: Final = 0
ANY_QUEUE: Final = -1

# Never empty and never unspecified: Java refuses to send then.
ACCEPTED: Final[Mapping[TopicType, tuple[definition_pb2.MessageType, ...]]] = {
    TopicType.NORMAL: (definition_pb2.NORMAL,),
    TopicType.FIFO: (definition_pb2.FIFO,),
    TopicType.DELAY: (definition_pb2.DELAY,),
    TopicType.TRANSACTION: (definition_pb2.TRANSACTION,),
    TopicType.LITE: (definition_pb2.LITE,),
    TopicType.PRIORITY: (definition_pb2.PRIORITY,),
    TopicType.MIXED: (
        definition_pb2.NORMAL,
        definition_pb2.FIFO,
        definition_pb2.DELAY,
        definition_pb2.TRANSACTION,
    ),
}
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class RouteService:
    def __init__(self, rooms: Rooms, shards: Shards | None = None) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._shards = shards
        self._broker_name = rooms.config.server.broker_name

    def query_route(
        self, request: service_pb2.QueryRouteRequest, caller: Caller
    ) -> service_pb2.QueryRouteResponse:
        """List every queue of the topic, readable and writable; of several shards in turns.

        Raises:
            IllegalTopicError: against the rules of names.
            TopicNotFoundError: it does not exist and is not made on demand.
            TooManyRequestsError: there are too many for one more.
        """
        name = wire.topic_name(request.topic)
        topic = self._engine.topics.planned(name, self._committer.now_ms(), caller.call.user)
        brokers = self._brokers(topic, request.endpoints, caller.call)
        return service_pb2.QueryRouteResponse(
            status=ok_status(),
            message_queues=[
                definition_pb2.MessageQueue(
                    topic=request.topic,
                    id=queue_id,
                    permission=definition_pb2.READ_WRITE,
                    broker=broker,
                    accept_message_types=ACCEPTED[topic.type],
                )
                for queue_id in range(topic.queue_count)
                for broker in brokers
            ],
        )

    def query_assignment(
        self, request: service_pb2.QueryAssignmentRequest, caller: Caller
    ) -> service_pb2.QueryAssignmentResponse:
        """Assign every queue to each client of the group: leases arbitrate, nothing is balanced.

        A FIFO group gets every queue, any other one queue that stands for all of its broker.

        Raises:
            IllegalTopicError, IllegalGroupError: against the rules of names.
            TopicNotFoundError, TooManyRequestsError: as `query_route`.
        """
        name = wire.topic_name(request.topic)
        group = self._engine.catalog.group(wire.group_name(request.group))
        topic = self._engine.topics.planned(name, self._committer.now_ms(), caller.call.user)
        fifo = group is not None and group.fifo
        brokers = self._brokers(topic, request.endpoints, caller.call)
        return service_pb2.QueryAssignmentResponse(
            status=ok_status(),
            assignments=[
                definition_pb2.Assignment(
                    message_queue=definition_pb2.MessageQueue(
                        topic=request.topic,
                        id=queue_id,
                        permission=definition_pb2.READ_WRITE,
                        broker=broker,
                    )
                )
                for queue_id in (range(topic.queue_count) if fifo else (ANY_QUEUE,))
                for broker in brokers
            ],
        )

    def _brokers(
        self, topic: Topic, asked: definition_pb2.Endpoints, call: Call
    ) -> Sequence[definition_pb2.Broker]:
        endpoints = asked if asked.addresses else endpoints_of(call.local)
        if self._shards is not None:
            return self._shards.brokers(topic, endpoints)
        return [definition_pb2.Broker(name=self._broker_name, id=MASTER, endpoints=endpoints)]


def endpoints_of(local: str) -> definition_pb2.Endpoints:
    """Name an address, such as where a call came in, for a caller that names no endpoints."""
    host, port = listen_address("local address", local)
    host = _WILDCARDS.get(host, host)
    if ":" in host:
        scheme = definition_pb2.IPv6
    elif host.replace(".", "").isdigit():
        scheme = definition_pb2.IPv4
    else:
        scheme = definition_pb2.DOMAIN_NAME
    address = definition_pb2.Address(host=host, port=port)
    return definition_pb2.Endpoints(scheme=scheme, addresses=[address])
