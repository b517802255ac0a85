"""Routes and assignments (protocol.md 3)."""

from collections.abc import Awaitable
from typing import Any, cast

import pytest

from latermq_broker.catalog.access import User
from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.engine.state.model import Group, Topic, TopicType
from latermq_broker.errors import unknown_topic
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.messaging.route import RouteService
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.fake_call import FakeCall
from support.fake_committer import FakeCommitter
from support.messaging import messaging_methods


class FakeCatalog:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def group(self, name: str) -> Group | None:
        return self.groups.get(name)


def topic_of(name: str, kind: TopicType = TopicType.MIXED, queues: int = 4) -> Topic:
    return Topic(id=1, name=name, type=kind, queue_count=queues, created_ms=0, epoch="0" * 16)


class FakeEngine:
    def __init__(self) -> None:
        self.catalog = FakeCatalog()
        self.auto_create = True
        self.strict = False

    def add(self, name: str, kind: TopicType = TopicType.MIXED, queues: int = 4) -> Topic:
        topic = topic_of(name, kind, queues)
        self.catalog.topics[name] = topic
        return topic

    @property
    def topics(self) -> "FakeEngine":
        return self

    def planned(self, name: str, now_ms: int, user: User | None = None) -> Topic:
        known = self.catalog.topics.get(name)
        if known is None and not self.auto_create:
            raise unknown_topic(name, strict=self.strict)
        return known or topic_of(name)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


class Client:
    def __init__(self, engine: FakeEngine) -> None:
        self.committer = FakeCommitter()
        config = Config(server=ServerConfig(broker_name="latermq-7"))
        service = RouteService(engine, self.committer, Sessions(config.server), config)
        self._methods = messaging_methods(service)
        self.endpoints = v2.Endpoints(
            scheme=v2.DOMAIN_NAME, addresses=[v2.Address(host="mq.example", port=19876)]
        )

    async def route(self, topic: str, namespace: str = "") -> service_pb2.QueryRouteResponse:
        request = service_pb2.QueryRouteRequest(
            topic=v2.Resource(name=topic, resource_namespace=namespace), endpoints=self.endpoints
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
def client(engine: FakeEngine) -> Client:
    return Client(engine)


class TestRoute:
    async def test_every_queue_from_0_readable_and_writable_on_the_master(
        self, engine: FakeEngine, client: Client
    ) -> None:
        engine.add("t", queues=3)
        queues = (await client.route("t")).message_queues
        assert [queue.id for queue in queues] == [0, 1, 2]
        assert {queue.permission for queue in queues} == {v2.READ_WRITE}
        assert {(queue.broker.name, queue.broker.id) for queue in queues} == {("latermq-7", 0)}

    async def test_endpoints_and_resource_come_back_verbatim(
        self, engine: FakeEngine, client: Client
    ) -> None:
        engine.add("t")
        queue = (await client.route("t", namespace="ns")).message_queues[0]
        assert queue.broker.endpoints == client.endpoints
        assert queue.topic == v2.Resource(name="t", resource_namespace="ns")

    async def test_a_caller_without_endpoints_gets_where_it_called(
        self, engine: FakeEngine, client: Client
    ) -> None:
        engine.add("t")
        client.endpoints = v2.Endpoints()
        endpoints = (await client.route("t")).message_queues[0].broker.endpoints
        assert endpoints.scheme == v2.IPv4
        assert [(a.host, a.port) for a in endpoints.addresses] == [("192.0.2.9", 8081)]

    @pytest.mark.parametrize("kind", list(TopicType))
    async def test_accepted_types_follow_the_topic_s(
        self, engine: FakeEngine, client: Client, kind: TopicType
    ) -> None:
        engine.add("t", kind)
        accepted = list((await client.route("t")).message_queues[0].accept_message_types)
        if kind is TopicType.MIXED:
            assert accepted == [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]
        else:
            assert accepted == [int(kind)]

    async def test_an_unknown_topic_has_the_route_it_will_have(
        self, engine: FakeEngine, client: Client
    ) -> None:
        assert len((await client.route("new")).message_queues) == 4
        assert (await client.assignment("new", "g")).assignments[0].message_queue.id == -1
        assert not engine.catalog.topics
        assert client.committer.waits == 0

    async def test_or_not_found_when_topics_are_not_made_on_demand(
        self, engine: FakeEngine, client: Client
    ) -> None:
        engine.auto_create = False
        answer = await client.route("new")
        assert answer.status.code == 40402
        assert not answer.message_queues

    @pytest.mark.parametrize("name", ["", "a b", "x" * 128, "TBW102"])
    async def test_names_are_checked_first(self, client: Client, name: str) -> None:
        assert (await client.route(name)).status.code == 40002


class TestAssignment:
    async def test_one_queue_for_all_of_them(self, engine: FakeEngine, client: Client) -> None:
        engine.add("t")
        (assignment,) = (await client.assignment("t", "g")).assignments
        queue = assignment.message_queue
        assert queue.id == -1
        assert queue.permission == v2.READ_WRITE
        assert queue.broker.endpoints == client.endpoints
        assert not queue.accept_message_types

    async def test_every_queue_for_a_fifo_group(self, engine: FakeEngine, client: Client) -> None:
        engine.add("t", queues=3)
        engine.catalog.groups["g"] = Group(
            id=1, name="g", fifo=True, max_attempts=17, backoff=None, created_ms=0
        )
        answer = await client.assignment("t", "g")
        assert [one.message_queue.id for one in answer.assignments] == [0, 1, 2]

    @pytest.mark.parametrize(
        ("topic", "group", "code"), [("", "g", 40002), ("t", "", 40003), ("nope", "g", 40402)]
    )
    async def test_refusals(
        self, engine: FakeEngine, client: Client, topic: str, group: str, code: int
    ) -> None:
        engine.add("t")
        engine.auto_create = False
        assert (await client.assignment(topic, group)).status.code == code


async def test_strict_an_assignment_of_an_unknown_topic_is_refused_in_rocketmq_s_words(
    engine: FakeEngine,
) -> None:
    engine.auto_create, engine.strict = False, True
    refused = (await Client(engine).assignment("t", "g")).status
    assert refused.code == v2.TOPIC_NOT_FOUND
    text = "CODE: 17  DESC: No topic route info in name server for the topic: t"
    assert refused.message == text
