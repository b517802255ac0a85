"""Who may call what: one row per RPC, each refusal by its code, and nothing done on a refusal."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import CompatConfig
from latermq_broker.engine.state.model import PendingFilter
from latermq_broker.services.auth.access_rules import RULES
from latermq_broker.services.call.answers import ADMIN, MESSAGING
from latermq_broker.services.registry import FILES
from latermq_proto.apache.rocketmq.v2 import admin_pb2, service_pb2
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import cluster_pb2, topic_pb2
from support.access_rig import ROOT, ROOT_SECRET, USER, AccessRig, signed
from support.fake_call import FakeCall

UNAUTHORIZED, FORBIDDEN = 40100, 40300
PUB, SUB, BROWSE, BODY = Right.PUB, Right.SUB, Right.BROWSE, Right.BODY
REDRIVE, PURGE = Right.REDRIVE, Right.PURGE
T, G = Kind.TOPIC, Kind.GROUP

ORDERS: Final = {"topic": {"name": "orders"}}
BILLING: Final = {"group": {"name": "billing"}}
LETTERS: Final = {"name": "%DLQ%billing"}
IN_ORDERS: Final = {"message_queue": ORDERS}

Granted = tuple[Kind, str, Right]
SUB_BOTH: Final = ((T, "orders", SUB), (G, "billing", SUB))
NOBODY: Final = ((T, "nobody", PUB),)  # any user; admin only where `None` stands
ALL_PURGE: Final = ((T, "*", PURGE), (G, "*", PURGE))
ALL_BROWSE: Final = ((T, "*", BROWSE), (G, "*", BROWSE))
ALL_BODY: Final = (*ALL_BROWSE, (T, "*", BODY), (G, "*", BODY))
LETTERS_READ: Final = ((G, "billing", BROWSE), (G, "billing", BODY))

# Path, request, and what exactly is needed: without any one of them it is refused. None: an admin.
M: Final = "apache.rocketmq.v2.MessagingService"
ROWS: Final[list[tuple[str, dict[str, Any], Sequence[Granted] | None]]] = [
    (f"{M}/QueryRoute", ORDERS, [(T, "orders", PUB)]),
    (f"{M}/QueryRoute", ORDERS, [(T, "orders", SUB)]),
    (f"{M}/QueryRoute", {"topic": LETTERS}, LETTERS_READ),
    (f"{M}/Heartbeat", BILLING, [(G, "billing", SUB)]),
    (f"{M}/Heartbeat", {}, NOBODY),
    (f"{M}/SendMessage", {"messages": [ORDERS]}, [(T, "orders", PUB)]),
    (
        f"{M}/SendMessage",
        {"messages": [ORDERS, {"topic": {"name": "bills"}}]},
        [(T, "orders", PUB), (T, "bills", PUB)],
    ),
    (f"{M}/SendMessage", {"messages": [{"topic": LETTERS}]}, None),
    (f"{M}/QueryAssignment", {**ORDERS, **BILLING}, SUB_BOTH),
    (f"{M}/ReceiveMessage", {**IN_ORDERS, **BILLING}, SUB_BOTH),
    (
        f"{M}/ReceiveMessage",
        {"message_queue": {"topic": LETTERS}, "group": {"name": "audit"}},
        [*LETTERS_READ, (G, "audit", SUB)],
    ),
    (f"{M}/AckMessage", {**ORDERS, **BILLING}, SUB_BOTH),
    (f"{M}/ForwardMessageToDeadLetterQueue", {**ORDERS, **BILLING}, SUB_BOTH),
    (f"{M}/PullMessage", {**IN_ORDERS, **BILLING}, SUB_BOTH),
    (f"{M}/UpdateOffset", {**IN_ORDERS, **BILLING}, SUB_BOTH),
    (f"{M}/GetOffset", {**IN_ORDERS, **BILLING}, SUB_BOTH),
    (f"{M}/QueryOffset", IN_ORDERS, [(T, "orders", SUB)]),
    (f"{M}/QueryOffset", IN_ORDERS, [(T, "orders", BROWSE)]),
    (f"{M}/EndTransaction", ORDERS, [(T, "orders", PUB)]),
    (f"{M}/NotifyClientTermination", BILLING, [(G, "billing", SUB)]),
    (f"{M}/ChangeInvisibleDuration", {**ORDERS, **BILLING}, [(G, "billing", SUB)]),
    (f"{M}/RecallMessage", ORDERS, [(T, "orders", PUB)]),
    (f"{M}/SyncLiteSubscription", {**ORDERS, **BILLING}, SUB_BOTH),
    ("latermq.v1.Topics/CreateTopic", {"name": "orders"}, None),
    ("latermq.v1.Topics/AlterTopic", {"name": "orders"}, None),
    ("latermq.v1.Topics/ListTopics", {}, [(T, "*", BROWSE)]),
    ("latermq.v1.Topics/GetTopic", {"name": "orders"}, [(T, "orders", PUB)]),
    ("latermq.v1.Topics/GetTopic", {"name": "orders"}, [(T, "orders", BROWSE)]),
    ("latermq.v1.Topics/GetTopic", LETTERS, [(G, "billing", BROWSE)]),
    ("latermq.v1.Topics/DeleteTopic", {"name": "orders"}, None),
    ("latermq.v1.Groups/CreateGroup", BILLING, None),
    ("latermq.v1.Groups/AlterGroup", {"name": "billing"}, None),
    ("latermq.v1.Groups/ListGroups", {}, [(G, "*", BROWSE)]),
    ("latermq.v1.Groups/GetGroup", {"name": "billing"}, [(G, "billing", SUB)]),
    ("latermq.v1.Groups/DeleteGroup", {"name": "billing"}, None),
    ("latermq.v1.Groups/ResetGroup", {"name": "billing"}, [(G, "billing", PURGE)]),
    ("latermq.v1.Groups/ListMessageGroups", {"group": "billing"}, [(G, "billing", BROWSE)]),
    ("latermq.v1.Groups/ListServices", {"group": "billing"}, [(G, "billing", SUB)]),
    ("latermq.v1.Groups/ListServices", {"group": "billing"}, [(G, "billing", BROWSE)]),
    ("latermq.v1.Pending/ListPending", {}, [(T, "*", BROWSE)]),
    ("latermq.v1.Pending/ListPending", {"filter": {"topic": "orders"}}, [(T, "orders", BROWSE)]),
    ("latermq.v1.Pending/ListPending", {"filter": {"group": "billing"}}, [(G, "billing", BROWSE)]),
    ("latermq.v1.Pending/ListPending", {"filter": {"topic": "SCHEDULE_TOPIC_XXXX"}},
     [(T, "*", BROWSE)]),
    (
        "latermq.v1.Pending/ListPending",
        {"filter": {"topic": "%RETRY%billing", "group": "mine"}},
        [(G, "billing", BROWSE), (G, "mine", BROWSE)],
    ),
    ("latermq.v1.Pending/CountPending", {"filter": {"topic": "orders"}}, [(T, "orders", BROWSE)]),
    ("latermq.v1.Pending/CancelPending", {"ids": ["1"]}, ALL_PURGE),
    ("latermq.v1.Pending/CommitPending", {"ids": ["1"]}, ALL_PURGE),
    ("latermq.v1.Pending/ExpeditePending", {"ids": ["1"]}, ALL_PURGE),
    ("latermq.v1.Pending/PostponePending", {"ids": ["1"]}, ALL_PURGE),
    ("latermq.v1.DeadLetters/ListDeadLetters", {"group": "billing"}, [(G, "billing", BROWSE)]),
    (
        "latermq.v1.DeadLetters/ListDeadLetters",
        {"group": "billing", "include_body": True},
        LETTERS_READ,
    ),
    ("latermq.v1.DeadLetters/GetDeadLetter", {"group": "billing"}, LETTERS_READ),
    ("latermq.v1.DeadLetters/RedriveDeadLetters", {"group": "billing"}, [(G, "billing", REDRIVE)]),
    (
        "latermq.v1.DeadLetters/RedriveDeadLetters",
        {"group": "billing", "to_topic": "orders"},
        [(G, "billing", REDRIVE), (T, "orders", PUB)],
    ),
    ("latermq.v1.DeadLetters/DropDeadLetters", {"group": "billing"}, [(G, "billing", REDRIVE)]),
    ("latermq.v1.Queues/DescribeQueues", {"topics": ["orders"]}, [(T, "orders", BROWSE)]),
    ("latermq.v1.Queues/DescribeQueues", {"topics": ["%DLQ%billing"]}, [(G, "billing", BROWSE)]),
    ("latermq.v1.Queues/DescribeQueues", {"topic_pattern": "orders"}, ALL_BROWSE),
    (
        "latermq.v1.Queues/ReadQueue",
        {"topic": "orders"},
        [(T, "orders", BROWSE), (T, "orders", BODY)],
    ),
    (
        "latermq.v1.Queues/ReadQueue",
        {"topic": "orders", "columns": ["tag"]},
        [(T, "orders", BROWSE)],
    ),
    ("latermq.v1.Queues/ReadQueue", {"topic": "%DLQ%billing"}, LETTERS_READ),
    ("latermq.v1.Messages/FindMessages", {"topic": "orders"}, [(T, "orders", BROWSE)]),
    (
        "latermq.v1.Messages/FindMessages",
        {"topic": "orders", "with_body": True},
        [(T, "orders", BROWSE), (T, "orders", BODY)],
    ),
    ("latermq.v1.Messages/FindMessages", {}, ALL_BROWSE),
    ("latermq.v1.Messages/DescribeMessage", {"message_id": "a"}, ALL_BROWSE),
    ("latermq.v1.Messages/DescribeMessage", {"message_id": "a", "with_body": True}, ALL_BODY),
    ("latermq.v1.Brokers/GetBroker", {}, NOBODY),
    ("latermq.v1.Brokers/ReconnectClients", {"all": True}, None),
    ("latermq.v1.Brokers/HandOverLog", {}, None),
    ("latermq.v1.Clients/ListClients", {}, None),
    ("latermq.v1.Clients/GetClient", {"client_id": "c-1"}, None),
    ("latermq.v1.Clients/KickClient", {"client_id": "c-1"}, None),
    ("latermq.v1.Limits/SetLimit", {}, None),
    ("latermq.v1.Limits/UnsetLimit", {}, None),
    ("latermq.v1.Limits/ListLimits", {}, NOBODY),
    ("latermq.v1.Backups/BeginBackup", {}, None),
    ("latermq.v1.Backups/KeepBackup", {}, None),
    ("latermq.v1.Backups/ReadLog", {}, None),
    (
        "latermq.v1.Schedules/PutSchedule",
        {"schedule": {"name": "report", "topic": "orders"}},
        [(T, "orders", PUB)],
    ),
    *((f"latermq.v1.Schedules/{name}", {"name": "report"}, NOBODY) for name in (
        "GetSchedule", "PauseSchedule", "ResumeSchedule", "RemoveSchedule", "RunSchedule",
    )),
    ("latermq.v1.Schedules/DeclareSchedules", {"app": "billing"}, NOBODY),
    ("latermq.v1.Schedules/PruneSchedules", {"app": "billing"}, NOBODY),
    ("latermq.v1.Schedules/ListSchedules", {}, NOBODY),
    *((f"latermq.v1.Users/{name}", {"access_key": USER}, None) for name in (
        "CreateUser", "AlterUser", "GetUser", "RotateUser", "DeleteUser", "GrantRights",
        "RevokeRights",
    )),
    ("latermq.v1.Users/ListUsers", {}, None),
    *((f"apache.rocketmq.v2.Admin/{rpc.name}", {}, None)
      for rpc in admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods),
]  # fmt: skip

RPCS: Final = {
    f"/{service.full_name}/{rpc.name}": rpc
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for rpc in service.methods
}
TELEMETRY: Final = f"{MESSAGING}/Telemetry"


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    levels = {name: logging.getLogger(name).level for name in ("", "latermq")}
    yield rig
    for name, level in levels.items():  # ChangeLogLevel is one of the RPCs
        logging.getLogger(name).setLevel(level)
    rig.close()


def row_name(value: object) -> str | None:
    return value if isinstance(value, str) else None


def code_of(rig: AccessRig, path: str, fields: dict[str, Any], call: FakeCall) -> int:
    rpc = RPCS[f"/{path}"]
    request = GetMessageClass(rpc.input_type)(**fields)
    return rig.code_of(f"/{path}", request, GetMessageClass(rpc.output_type), call)


def test_every_rpc_has_a_row_here_and_in_the_rules() -> None:
    assert {f"/{path}" for path, _, _ in ROWS} | {TELEMETRY} == set(RPCS)
    cluster = cluster_pb2.DESCRIPTOR.services_by_name["Cluster"].methods
    shards = {f"/latermq.v1.Cluster/{rpc.name}" for rpc in cluster}
    assert set(RULES) - shards == {path for path in RPCS if not path.startswith(ADMIN)}
    assert set(RULES) >= shards


@pytest.mark.parametrize(("path", "fields", "needed"), ROWS, ids=row_name)
class TestRows:
    def test_without_a_signature(
        self, rig: AccessRig, path: str, fields: dict[str, Any], needed: Sequence[Granted] | None
    ) -> None:
        assert code_of(rig, path, fields, FakeCall()) == UNAUTHORIZED

    def test_with_all_rights_but_one(
        self, rig: AccessRig, path: str, fields: dict[str, Any], needed: Sequence[Granted] | None
    ) -> None:
        """Without being an admin, every right there is does not make up for it."""
        if needed is NOBODY:
            needed = ()
        others = [(kind, "*", right) for kind in Kind for right in Right] if needed is None else ()
        for missing in needed if needed is not None else (None,):
            for kind, pattern, right in (*others, *(needed or ())):
                if (kind, pattern, right) != missing:
                    rig.grant(kind, pattern, right)
            before = rig.engine.store.log.end
            assert code_of(rig, path, fields, rig.by()) == FORBIDDEN, missing
            assert rig.engine.store.log.end == before
            for grant in rig.engine.users.get(USER).grants:
                rights = frozenset(map(Right, grant.rights))
                rig.engine.users.revoke(USER, Kind(grant.kind), grant.pattern, rights, rig.now_ms)

    def test_with_exactly_these_rights(
        self, rig: AccessRig, path: str, fields: dict[str, Any], needed: Sequence[Granted] | None
    ) -> None:
        """It comes to the handler, which may have something to say of its own."""
        for kind, pattern, right in needed or ():
            rig.grant(kind, pattern, right)
        call = rig.by(ROOT, ROOT_SECRET) if needed is None else rig.by()
        short = FakeCall(metadata=call._metadata, remaining_ms=50)
        assert code_of(rig, path, fields, short) not in (UNAUTHORIZED, FORBIDDEN)


class TestCallers:
    PATH = "latermq.v1.Brokers/GetBroker"

    def code(self, rig: AccessRig, call: FakeCall) -> int:
        return code_of(rig, self.PATH, {}, call)

    def test_a_wrong_secret_an_unknown_user_another_date(self, rig: AccessRig) -> None:
        assert self.code(rig, rig.by()) == 20000
        assert self.code(rig, rig.by(secret="the-secret-of-shoq")) == UNAUTHORIZED
        assert self.code(rig, rig.by("nobody")) == UNAUTHORIZED
        headers = signed(USER, "the-secret-of-shop", rig.date)
        headers["x-mq-date-time"] = "2024" + rig.date[4:]
        assert self.code(rig, FakeCall(metadata=headers)) == UNAUTHORIZED

    def test_a_user_is_let_in_no_longer_than_it_is_one(self, rig: AccessRig) -> None:
        """What was verified once is asked again after any change."""
        users, call = rig.engine.users, rig.by()
        assert self.code(rig, call) == 20000
        users.alter(USER, admin=None, disabled=True, now_ms=rig.now_ms)
        assert self.code(rig, call) == UNAUTHORIZED
        users.alter(USER, admin=None, disabled=False, now_ms=rig.now_ms)
        assert self.code(rig, call) == 20000
        users.rotate(USER, "another-secret", rig.now_ms)
        assert self.code(rig, call) == UNAUTHORIZED
        assert self.code(rig, rig.by(secret="another-secret")) == 20000
        users.delete(USER, rig.now_ms)
        assert self.code(rig, rig.by(secret="another-secret")) == UNAUTHORIZED

    def test_a_right_that_is_revoked_is_gone_at_once(self, rig: AccessRig) -> None:
        rig.grant(T, "*", BROWSE)
        assert code_of(rig, "latermq.v1.Topics/ListTopics", {}, rig.by()) == 20000
        rig.engine.users.revoke(USER, T, "*", frozenset({BROWSE}), rig.now_ms)
        assert code_of(rig, "latermq.v1.Topics/ListTopics", {}, rig.by()) == FORBIDDEN

    def test_an_old_signature(self, rig: AccessRig) -> None:
        """A date may be of any zone, so the bound is the farthest zone and the skew."""
        call = rig.by()
        rig.now_ms += 12 * 3_600_000 + 900_000 - rig.now_ms % 1_000
        assert self.code(rig, call) == 20000
        rig.now_ms += 2_000
        assert self.code(rig, call) == UNAUTHORIZED
        rig.now_ms -= 26 * 3_600_000 + 2 * 900_000 + 5_000
        assert self.code(rig, call) == UNAUTHORIZED

    def test_any_date_where_none_is_asked_for(self) -> None:
        rig = AccessRig(AuthConfig(enabled=True, clock_skew_ms_max=0))
        call = FakeCall(metadata=signed(USER, "the-secret-of-shop", "once upon a time"))
        assert self.code(rig, call) == 20000
        rig.close()

    def test_the_configured_root_goes_before_a_stored_one(self, rig: AccessRig) -> None:
        rig.engine.users.create(ROOT, "a-stored-secret", admin=False, now_ms=rig.now_ms)
        assert self.code(rig, rig.by(ROOT, "a-stored-secret")) == UNAUTHORIZED
        assert self.code(rig, rig.by(ROOT, ROOT_SECRET)) == 20000

    def test_many_signatures_are_not_kept(self, rig: AccessRig) -> None:
        for second in range(10_000):
            call = FakeCall(metadata=signed(ROOT, ROOT_SECRET, f"20251121T{second:06}Z"))
            self.code(rig, call)

    def test_a_refusal_is_logged_once_a_minute_without_secrets(
        self, rig: AccessRig, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for _ in range(3):
            self.code(rig, rig.by(secret="not-this-secret"))
        (line,) = [record for record in caplog.records if record.message == "call refused"]
        assert "shop" in str(vars(line)["reason"])
        rig.now_ms += 61_000
        self.code(rig, rig.by(secret="not-this-secret"))
        assert len(caplog.records) == 2
        assert "secret-of" not in caplog.text + str([vars(each) for each in caplog.records])


class TestCertificates:
    """`auth.certificate_users`: the transport has verified them."""

    PATH = "latermq.v1.Brokers/GetBroker"

    @pytest.fixture
    def certified(self) -> Iterator[AccessRig]:
        rig = AccessRig(AuthConfig(enabled=True, certificate_users=True))
        yield rig
        rig.close()

    def code(self, rig: AccessRig, call: FakeCall) -> int:
        return code_of(rig, self.PATH, {}, call)

    def test_name_a_user(self, certified: AccessRig) -> None:
        call = FakeCall(certificate_name=USER)
        assert self.code(certified, call) == 20000
        assert self.code(certified, FakeCall(certificate_name="nobody")) == UNAUTHORIZED
        assert self.code(certified, FakeCall()) == UNAUTHORIZED
        users = certified.engine.users
        users.alter(USER, admin=None, disabled=True, now_ms=certified.now_ms)
        assert self.code(certified, call) == UNAUTHORIZED

    def test_do_not_stand_in_for_a_wrong_signature(self, certified: AccessRig) -> None:
        headers = signed(USER, "not-this-secret", certified.date)
        call = FakeCall(metadata=headers, certificate_name=USER)
        assert self.code(certified, call) == UNAUTHORIZED

    def test_name_nobody_unless_asked_for(self, rig: AccessRig) -> None:
        assert self.code(rig, FakeCall(certificate_name=USER)) == UNAUTHORIZED


def test_strict_says_unauthorized_for_a_missing_right(rig: AccessRig) -> None:
    rig.config = replace(rig.config, compat=CompatConfig(strict=True))
    rig.assemble_again()
    assert code_of(rig, "latermq.v1.Topics/ListTopics", {}, rig.by()) == UNAUTHORIZED
    rig.grant(T, "*", BROWSE)
    assert code_of(rig, "latermq.v1.Topics/ListTopics", {}, rig.by()) == 20000


def test_nothing_is_stored_of_a_refused_message(rig: AccessRig) -> None:
    rig.grant(T, "other", PUB)
    request = {"messages": [{"topic": {"name": "orders"}, "body": b"x"}]}
    before = rig.engine.store.log.end
    assert code_of(rig, f"{M}/SendMessage", request, rig.by()) == FORBIDDEN
    assert code_of(rig, f"{M}/QueryRoute", ORDERS, rig.by()) == FORBIDDEN
    assert rig.engine.store.log.end == before
    assert rig.engine.catalog.topic("orders") is None
    assert rig.engine.pending.count(PendingFilter()) == []


def test_bytes_that_are_no_request_are_told_so_to_users_only(rig: AccessRig) -> None:
    path = "/latermq.v1.Topics/ListTopics"
    answer = topic_pb2.ListTopicsResponse.FromString(rig.raw(path, b"\xff", FakeCall()))
    assert int(answer.status.code) == UNAUTHORIZED
    answer = topic_pb2.ListTopicsResponse.FromString(rig.raw(path, b"\xff", rig.by()))
    assert int(answer.status.code) == 40000


class TestTelemetry:
    def answers(
        self, rig: AccessRig, call: FakeCall, *settings: v2.Settings, then: Any = None
    ) -> list[int]:
        """The status of each command that comes back, until the stream ends or all came."""

        async def exchange() -> list[int]:
            requests: asyncio.Queue[bytes] = asyncio.Queue()

            async def sent() -> AsyncIterator[bytes]:
                while True:
                    yield await requests.get()

            stream = rig.methods[TELEMETRY].handler(sent(), call)
            codes: list[int] = []
            waiting = list(settings)
            while True:
                if waiting:
                    command = service_pb2.TelemetryCommand(settings=waiting.pop(0))
                    requests.put_nowait(command.SerializeToString())
                try:
                    data = await asyncio.wait_for(anext(stream), 5)
                except StopAsyncIteration:
                    return codes
                codes.append(service_pb2.TelemetryCommand.FromString(data).status.code)
                if then is not None:
                    then()
                if len(codes) == len(settings):
                    await stream.aclose()
                    return codes

        return rig.loop.run_until_complete(exchange())

    def producer(self, *topics: str) -> v2.Settings:
        names = [v2.Resource(name=name) for name in topics]
        return v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=names))

    def consumer(self, topic: str, group: str) -> v2.Settings:
        entry = v2.SubscriptionEntry(topic=v2.Resource(name=topic))
        return v2.Settings(
            client_type=v2.SIMPLE_CONSUMER,
            subscription=v2.Subscription(group=v2.Resource(name=group), subscriptions=[entry]),
        )

    def test_a_stream_nobody_signed(self, rig: AccessRig) -> None:
        assert self.answers(rig, FakeCall(), self.producer(), self.producer()) == [UNAUTHORIZED]

    def test_what_it_says_it_will_do_is_looked_at(self, rig: AccessRig) -> None:
        rig.grant(T, "orders", PUB)
        good, bad = self.producer("orders"), self.producer("orders", "bills")
        assert self.answers(rig, rig.by(), good, good) == [20000, 20000]
        assert self.answers(rig, rig.by(), good, bad, good) == [20000, FORBIDDEN]

    def test_a_consumer_needs_its_group_and_its_topics(self, rig: AccessRig) -> None:
        settings = self.consumer("orders", "billing")
        rig.grant(T, "orders", SUB)
        assert self.answers(rig, rig.by(), settings, settings) == [FORBIDDEN]
        rig.grant(G, "billing", SUB)
        assert self.answers(rig, rig.by(), settings) == [20000]
        letters = self.consumer("%DLQ%billing", "billing")
        assert self.answers(rig, rig.by(), letters, letters) == [FORBIDDEN]

    def test_a_user_who_is_disabled_meanwhile(self, rig: AccessRig) -> None:
        users, settings = rig.engine.users, self.producer()

        def disable() -> None:
            users.alter(USER, admin=None, disabled=True, now_ms=rig.now_ms)

        codes = self.answers(rig, rig.by(), settings, settings, settings, then=disable)
        assert codes == [20000, UNAUTHORIZED]

    def test_a_living_client_is_its_users_alone(self, rig: AccessRig) -> None:
        assert self.answers(rig, rig.by(client_id="mine"), self.producer()) == [20000]
        theirs = rig.by(ROOT, ROOT_SECRET, client_id="mine")
        assert self.answers(rig, theirs, self.producer(), self.producer()) == [FORBIDDEN]
        for path in (f"{M}/Heartbeat", f"{M}/NotifyClientTermination"):
            assert code_of(rig, path, {}, theirs) == FORBIDDEN
            assert code_of(rig, path, {}, rig.by(client_id="mine")) == 20000
        assert self.answers(rig, theirs, self.producer()) == [20000]  # it is nobody's any more
