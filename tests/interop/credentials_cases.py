"""What an official client must be able to do against a broker that asks who calls.

Collected as `client_cases`; the subclass has a broker of its own, and says in its `signed_in`
fixture how the client is started.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from interop.official import OfficialClient, OfficialError, text
from latermq import admin
from latermq_proto.latermq.v1 import topic_pb2, user_pb2
from support.broker_process import BrokerProcess

ROOT, ROOT_SECRET = "root", "the-secret-of-root"
SECRET = "the-secret-of-shop"
CONFIG = (
    "[server]\npolling_ms_min = 100\npolling_ms_max = 3000\n"
    f'[auth]\nenabled = true\nroot_access_key = "{ROOT}"\nroot_secret_key = "{ROOT_SECRET}"\n'
)

SignedIn = Callable[[str, str], AbstractContextManager[OfficialClient]]


class Users:
    """Root's hands."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def topics(self, prefix: str) -> list[str]:
        """Those there are."""
        with self._broker() as broker:
            request = topic_pb2.ListTopicsRequest(page_size=1_000)
            found = broker.call(broker.topics.ListTopics, request).topics
        return [topic.name for topic in found if topic.name.startswith(prefix)]

    def make(self, key: str, *grants: tuple[int, str, str]) -> None:
        """Grants: kind, pattern, rights with blanks between them."""
        with self._broker() as broker:
            create = user_pb2.CreateUserRequest(access_key=key, secret=SECRET)
            broker.call(broker.users.CreateUser, create)
            for kind, pattern, rights in grants:
                grant = user_pb2.Grant(kind=kind, pattern=pattern, rights=rights.split())
                request = user_pb2.ChangeGrantRequest(access_key=key, grant=grant)
                broker.call(broker.users.GrantRights, request)

    def _broker(self) -> admin.Admin:
        return admin.connect(self._endpoint, access_key=ROOT, secret=ROOT_SECRET)


class CredentialsCases:
    TOPIC, GROUP = user_pb2.Grant.TOPIC, user_pb2.Grant.GROUP

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        """A user, topic and group that no other test has."""
        return re.sub(r"[^a-z]", "-", request.node.name)[:50]

    @pytest.fixture
    def users(self, broker: BrokerProcess) -> Users:
        return Users(broker.endpoint)

    def test_credentials_send_and_receive_what_was_granted(
        self, broker: BrokerProcess, users: Users, signed_in: SignedIn, name: str
    ) -> None:
        users.make(name, (self.TOPIC, f"{name}-*", "pub sub"), (self.GROUP, name, "sub"))
        topic = f"{name}-orders"
        with signed_in(name, SECRET) as client:
            client.call("producer", name="p", endpoint=broker.endpoint, topics=[topic])
            client.call("send", name="p", topic=topic, text="hello")
            place = {"endpoint": broker.endpoint, "group": name, "topics": {topic: "*"}}
            client.call("simple", name="c", wait_s=5, **place)
            (one,) = client.call("receive", name="c")
            assert text(one) == "hello"
            client.call("ack", name="c", ref=one["ref"])
            for each in ("c", "p"):
                client.call("shutdown", name=each)

    def test_credentials_of_a_push_consumer(
        self, broker: BrokerProcess, users: Users, signed_in: SignedIn, name: str
    ) -> None:
        users.make(name, (self.TOPIC, name, "pub sub"), (self.GROUP, name, "sub"))
        with signed_in(name, SECRET) as client:
            client.call("producer", name="p", endpoint=broker.endpoint, topics=[name])
            client.call("send", name="p", topic=name, text="hello")
            place = {"endpoint": broker.endpoint, "group": name, "topics": {name: "*"}}
            client.call("push", name="c", failures={}, **place)
            (one,) = client.wait_consumed("c", 1)
            assert text(one) == "hello"
            for each in ("c", "p"):
                client.call("shutdown", name=each)

    def test_credentials_without_the_right(
        self, broker: BrokerProcess, users: Users, signed_in: SignedIn, name: str
    ) -> None:
        users.make(name, (self.TOPIC, name, "pub"))
        with signed_in(name, SECRET) as client:
            client.call("producer", name="p", endpoint=broker.endpoint, topics=[name])
            client.call("send", name="p", topic=name, text="hello")
            with pytest.raises(OfficialError):  # in the words of the client
                client.call("send", name="p", topic=f"{name}-closed", text="hello")
            client.call("shutdown", name="p")
        assert users.topics(name) == [name]

    def test_credentials_with_a_wrong_secret(
        self, broker: BrokerProcess, users: Users, signed_in: SignedIn, name: str
    ) -> None:
        with signed_in(ROOT, "not-this-secret") as client, pytest.raises(OfficialError):
            start_and_send(client, broker.endpoint, name)
        assert users.topics(name) == []


def start_and_send(client: OfficialClient, endpoint: str, topic: str) -> None:
    """Some clients are refused when they start, others when they send."""
    client.call("producer", name="p", endpoint=endpoint, topics=[topic])
    client.call("send", name="p", topic=topic, text="hello")
