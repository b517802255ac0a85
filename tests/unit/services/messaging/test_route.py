"""Routes and assignments (protocol.md 3)."""

from collections.abc import Awaitable
from typing import Any, cast

import pytest

from latermq_broker.config.config import CatalogConfig, Config, ServerConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.messaging.route import RouteService
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.engine_rig import EngineRig
from support.fake_call import FakeCall
from support.fake_committer import FakeCommitter
from support.messaging import messaging_methods


def broker(*, auto_create: bool = True, strict: bool = False) -> EngineRig:
    return EngineRig(catalog=CatalogConfig(auto_create=auto_create), strict=strict)


def add(rig: EngineRig, name: str, kind: TopicType = TopicType.MIXED, queues: int = 0) -> None:
    rig.engine.topics.create(name, kind, queues, rig.now_ms)


@pytest.fixture
def rig() -> EngineRig:
    return broker()


class Client:
    def __init__(self, rig: EngineRig) -> None:
        self.committer = FakeCommitter()
        config = Config(server=ServerConfig(broker_name="latermq-7"))
        service = RouteService(Rooms(rig.engine, self.committer, Sessions(config.server), config))
        self._methods = messaging_methods(service)
        self.endpoints = v2.Endpoints(
            scheme=v2.DOMAIN_NAME, addresses=[v2.Address(host="mq.example", port=19876)]
        )

    async def route(self, topic: str) -> service_pb2.QueryRouteResponse:
        request = service_pb2.QueryRouteRequest(
            topic=v2.Resource(name=topic), endpoints=self.endpoints
        )
        data = await self._call("QueryRoute", request.SerializeToString())
        return service_pb2.QueryRouteResponse.FromString(data)

    async def assignment(self, topic: str, group: str) -> service_pb2.QueryAssignmentResponse:
        request = service_pb2.QueryAssignmentRequest(
            topic=v2.Resource(name=topic),
            group=v2.Resource(name=group),
            endpoints=self.endpoints,
        )
        data = await self._call("QueryAssignment", request.SerializeToString())
        return service_pb2.QueryAssignmentResponse.FromString(data)

    async def _call(self, name: str, data: bytes) -> bytes:
        handler = self._methods[f"/apache.rocketmq.v2.MessagingService/{name}"].handler
        result: Any = handler(cast(Any, data), FakeCall())
        return result if isinstance(result, bytes) else await cast(Awaitable[bytes], result)


@pytest.fixture
def client(rig: EngineRig) -> Client:
    return Client(rig)


class TestRoute:
    async def test_every_queue_from_0_readable_and_writable_on_the_master(
        self, rig: EngineRig, client: Client
    ) -> None:
        add(rig, "t", queues=3)
        queues = (await client.route("t")).message_queues
        assert [queue.id for queue in queues] == [0, 1, 2]
        assert {queue.permission for queue in queues} == {v2.READ_WRITE}
        assert {(queue.broker.name, queue.broker.id) for queue in queues} == {("latermq-7", 0)}

    async def test_endpoints_and_resource_come_back_verbatim(
        self, rig: EngineRig, client: Client
    ) -> None:
        add(rig, "t")
        queue = (await client.route("t")).message_queues[0]
        assert queue.broker.endpoints == client.endpoints
        assert queue.topic == v2.Resource(name="t")

    async def test_a_caller_without_endpoints_gets_where_it_called(
        self, rig: EngineRig, client: Client
    ) -> None:
        add(rig, "t")
        client.endpoints = v2.Endpoints()
        endpoints = (await client.route("t")).message_queues[0].broker.endpoints
        assert endpoints.scheme == v2.IPv4
        assert [(a.host, a.port) for a in endpoints.addresses] == [("192.0.2.9", 8081)]

    @pytest.mark.parametrize("kind", list(TopicType))
    async def test_accepted_types_follow_the_topic_s(
        self, rig: EngineRig, client: Client, kind: TopicType
    ) -> None:
        add(rig, "t", kind)
        accepted = list((await client.route("t")).message_queues[0].accept_message_types)
        if kind is TopicType.MIXED:
            assert accepted == [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]
        else:
            assert accepted == [int(kind)]

    async def test_an_unknown_topic_has_the_route_it_will_have(
        self, rig: EngineRig, client: Client
    ) -> None:
        assert len((await client.route("new")).message_queues) == 4
        assert (await client.assignment("new", "g")).assignments[0].message_queue.id == -1
        assert not list(rig.engine.catalog.topics())
        assert client.committer.waits == 0

    async def test_or_not_found_when_topics_are_not_made_on_demand(
        self,
    ) -> None:
        answer = await Client(broker(auto_create=False)).route("new")
        assert answer.status.code == 40402
        assert not answer.message_queues

    @pytest.mark.parametrize("name", ["", "a b", "x" * 128, "TBW102"])
    async def test_names_are_checked_first(self, client: Client, name: str) -> None:
        assert (await client.route(name)).status.code == 40002


class TestAssignment:
    async def test_one_queue_for_all_of_them(self, rig: EngineRig, client: Client) -> None:
        add(rig, "t")
        (assignment,) = (await client.assignment("t", "g")).assignments
        queue = assignment.message_queue
        assert queue.id == -1
        assert queue.permission == v2.READ_WRITE
        assert queue.broker.endpoints == client.endpoints
        assert not queue.accept_message_types

    async def test_every_queue_for_a_fifo_group(self, rig: EngineRig, client: Client) -> None:
        add(rig, "t", queues=3)
        rig.engine.groups.create("g", fifo=True, max_attempts=0, backoff=None, now_ms=rig.now_ms)
        answer = await client.assignment("t", "g")
        assert [one.message_queue.id for one in answer.assignments] == [0, 1, 2]

    @pytest.mark.parametrize(
        ("topic", "group", "code"), [("", "g", 40002), ("t", "", 40003), ("nope", "g", 40402)]
    )
    async def test_refusals(self, topic: str, group: str, code: int) -> None:
        rig = broker(auto_create=False)
        add(rig, "t")
        assert (await Client(rig).assignment(topic, group)).status.code == code


async def test_strict_an_assignment_of_an_unknown_topic_is_refused_in_rocketmq_s_words() -> None:
    refused = (await Client(broker(auto_create=False, strict=True)).assignment("t", "g")).status
    assert refused.code == v2.TOPIC_NOT_FOUND
    text = "CODE: 17  DESC: No topic route info in name server for the topic: t"
    assert refused.message == text
