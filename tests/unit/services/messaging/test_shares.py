"""What one user may take of what is everybody's, and what is kept for admins."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from latermq_broker.catalog.access import Kind, Right, User
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.catalog.shares import Shares, count_up, key_of, maker
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import (
    CatalogConfig,
    Config,
    LiteConfig,
    ServerConfig,
    TransactionConfig,
)
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import TopicType
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.services.call.answers import MESSAGING
from latermq_broker.services.messaging.flow import FlowControl
from latermq_broker.services.messaging.parking import Parking
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.access_rig import ROOT, ROOT_SECRET, AccessRig
from support.engine_rig import EngineRig
from support.fake_call import FakeCall
from support.telemetry_stream import TelemetryStream, producer_of
from support.virtual_loop import virtually
from support.wire_requests import duration, message, resource, send

OK, TOO_MANY = 20000, 42900
OTHER, OTHER_SECRET = "other", "the-secret-of-other"
SHOP: Final = User(access_key="shop", secret="the-secret-of-shop")
ELSE: Final = User(access_key="other", secret="the-secret-of-other")
ADMIN: Final = User(access_key="root", secret="the-secret-of-root", admin=True)
TEN: Final = Config(  # of each kind: five for one user, one for admins
    server=ServerConfig(clients_max=10, parked_receives_max=10),
    catalog=CatalogConfig(topic_count_max=10, group_count_max=10, default_queue_count=1),
    lite=LiteConfig(subscriptions_max=10),
    transaction=TransactionConfig(half_messages_max=10),
    auth=AuthConfig(
        enabled=True, root_access_key=ROOT, root_secret_key=ROOT_SECRET,
        user_share_percent=50, admin_reserve_percent=10,
    ),
)  # fmt: skip


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    made = AccessRig(TEN.auth)
    made.config = replace(
        made.config, server=TEN.server, catalog=TEN.catalog, lite=TEN.lite,
        transaction=TEN.transaction,
    )  # fmt: skip
    made.crash()
    made.assemble_again()
    made.engine.users.create(OTHER, OTHER_SECRET, admin=False, now_ms=made.now_ms)
    for user in ("shop", OTHER):
        for kind, right in (
            (Kind.TOPIC, Right.PUB),
            (Kind.TOPIC, Right.SUB),
            (Kind.GROUP, Right.SUB),
        ):
            made.engine.users.grant(user, kind, "*", frozenset({right}), made.now_ms)
    yield made
    made.close()


def other(rig: AccessRig, client_id: str = "other@1") -> FakeCall:
    return rig.by(OTHER, OTHER_SECRET, client_id)


def root(rig: AccessRig, client_id: str = "root@1") -> FakeCall:
    return rig.by(ROOT, ROOT_SECRET, client_id)


def code_of(rig: AccessRig, name: str, request: Any, call: FakeCall) -> int:
    response = getattr(service_pb2, f"{name}Response")
    return rig.code_of(f"{MESSAGING}/{name}", request, response, call)


class TestShares:
    def test_a_user_has_a_part_and_the_last_is_for_admins(self) -> None:
        shares = Shares(TEN.auth)

        def fits(user: User | None, held: int, of_user: int) -> bool:
            try:
                shares.check(user, "things", "room.things_max", 10, held, of_user)
            except TooManyRequestsError as error:
                return "room.things_max" not in str(error)
            return True

        assert fits(SHOP, 4, 4)
        assert not fits(SHOP, 5, 5)
        assert fits(ELSE, 8, 4)
        assert not fits(ELSE, 9, 0)
        assert fits(ADMIN, 9, 9)
        assert not fits(ADMIN, 10, 0)
        assert fits(None, 9, 9)
        assert not fits(None, 10, 0)

    def test_more_than_one_at_a_time(self) -> None:
        shares = Shares(TEN.auth)
        shares.check(SHOP, "bytes", "room.bytes_max", 10, 6, 2, more=3)
        with pytest.raises(TooManyRequestsError) as refused:
            shares.check(SHOP, "bytes", "room.bytes_max", 10, 6, 3, more=3)
        assert str(refused.value) == (
            "user shop has 3 bytes and 3 more are asked for, at most 5 of 10 may be one user's "
            "(room.bytes_max, auth.user_share_percent)"
        )
        with pytest.raises(TooManyRequestsError) as refused:
            shares.check(SHOP, "bytes", "room.bytes_max", 10, 7, 0, more=3)
        assert str(refused.value) == (
            "there are 7 bytes and 3 more are asked for, at most 10 may be (room.bytes_max), "
            "the last 1 of them for admins (auth.admin_reserve_percent)"
        )

    def test_one_is_allowed_whatever_the_part(self) -> None:
        Shares(AuthConfig()).check(SHOP, "things", "x", 1, 0, 0)

    def test_what_is_counted_as_whose(self) -> None:
        assert (key_of(SHOP), key_of(ADMIN), key_of(None)) == ("shop", "root", "")
        assert (maker(SHOP), maker(ADMIN), maker(None)) == ("shop", "", "")
        counts: dict[str, int] = {}
        for key, count in (("a", 2), ("", 5), ("a", -1), ("b", 1), ("b", -1)):
            count_up(counts, key, count)
        assert counts == {"a": 1}


def test_sessions(rig: AccessRig) -> None:
    streams = []

    def opened(call: FakeCall) -> int:
        streams.append(TelemetryStream(rig, call))
        return streams[-1].settings(producer_of())

    assert [opened(rig.by(client_id=f"shop@{n}")) for n in range(6)] == [OK] * 5 + [TOO_MANY]
    assert [opened(other(rig, f"other@{n}")) for n in range(5)] == [OK] * 4 + [TOO_MANY]
    assert opened(root(rig)) == OK
    assert opened(root(rig, "root@2")) == TOO_MANY
    assert streams[0].settings(producer_of("orders")) == OK  # it has a session
    leaving = service_pb2.NotifyClientTerminationRequest()
    for call in (rig.by(client_id="shop@0"), root(rig)):
        assert code_of(rig, "NotifyClientTermination", leaving, call) == OK
    assert opened(rig.by(client_id="shop@9")) == OK
    for stream in streams:
        stream.close()


def sent(rig: AccessRig, topic: str, call: FakeCall) -> int:
    request = send([message(topic, b"x", message_id="m")])
    return code_of(rig, "SendMessage", request, call)


def received(rig: AccessRig, group: str, call: FakeCall, topic: str = "orders") -> int:
    request = service_pb2.ReceiveMessageRequest(
        group=resource(group),
        message_queue=v2.MessageQueue(topic=resource(topic)),
        invisible_duration=duration(30_000),
        long_polling_timeout=duration(0),
    )
    return code_of(rig, "ReceiveMessage", request, call)


def test_topics_made_by_use_also_after_a_restart(rig: AccessRig) -> None:
    before = rig.engine.store.log.end
    assert [sent(rig, f"s-{n}", rig.by()) for n in range(6)] == [OK] * 5 + [TOO_MANY]
    assert rig.engine.store.log.end > before
    assert rig.engine.catalog.topic("s-5") is None
    route = service_pb2.QueryRouteRequest(topic=resource("s-5"))
    assert code_of(rig, "QueryRoute", route, rig.by()) == TOO_MANY
    assert sent(rig, "s-0", rig.by()) == OK
    for _ in range(2):
        assert rig.engine._state.catalog.topics_made == {"shop": 5}
        rig.crash()
        rig.checkpoint()
        rig.crash()
    rig.assemble_again()
    assert [sent(rig, f"o-{n}", other(rig)) for n in range(5)] == [OK] * 4 + [TOO_MANY]
    assert sent(rig, "r-0", root(rig)) == OK
    assert sent(rig, "r-1", root(rig)) == TOO_MANY
    for name in ("s-0", "r-0"):
        rig.engine.topics.delete(name, rig.now_ms)
    assert sent(rig, "s-6", rig.by()) == OK


def test_groups_made_by_use(rig: AccessRig) -> None:
    assert sent(rig, "orders", rig.by()) == OK
    tries = [received(rig, f"s-{n}", rig.by()) for n in range(6)]
    assert tries.count(TOO_MANY) == 1
    assert tries[5] == TOO_MANY
    assert rig.engine.catalog.group("s-5") is None
    assert TOO_MANY not in [received(rig, f"o-{n}", other(rig)) for n in range(4)]
    assert received(rig, "o-4", other(rig)) == TOO_MANY
    assert received(rig, "r", root(rig)) != TOO_MANY
    assert rig.crash().catalog.group("s-0") is not None
    assert rig.engine._state.catalog.groups_made == {"shop": 5, "other": 4}


def test_open_transactions(rig: AccessRig) -> None:
    def begun(call: FakeCall) -> int:
        half = message("orders", b"x", message_id="m")
        half.system_properties.message_type = v2.TRANSACTION
        return code_of(rig, "SendMessage", send([half]), call)

    assert [begun(rig.by()) for _ in range(6)] == [OK] * 5 + [TOO_MANY]
    assert [begun(other(rig)) for _ in range(5)] == [OK] * 5
    (first, *_) = rig.engine._state.halves
    rig.engine.transactions.roll_back(first, 1, rig.now_ms)
    assert begun(rig.by()) == OK


def test_lite_subscriptions(rig: AccessRig) -> None:
    rig.engine.topics.create("orders", TopicType.LITE, 1, rig.now_ms)

    def synced(call: FakeCall, *names: str) -> int:
        request = service_pb2.SyncLiteSubscriptionRequest(
            topic=resource("orders"), group=resource("g"), lite_topic_set=names,
            action=v2.COMPLETE_ADD,
        )  # fmt: skip
        return code_of(rig, "SyncLiteSubscription", request, call)

    assert synced(rig.by(client_id="a"), "1", "2", "3") == OK
    assert synced(rig.by(client_id="b"), "1", "2", "3") == TOO_MANY
    assert synced(rig.by(client_id="b"), "1", "2") == OK
    assert synced(other(rig), "1", "2", "3", "4", "5") == TOO_MANY  # the last one is for admins
    assert synced(other(rig), "1", "2", "3", "4") == OK
    assert synced(root(rig), "1") == OK
    assert synced(rig.by(client_id="a")) == OK
    assert synced(root(rig)) == OK
    assert synced(rig.by(client_id="b"), "1", "2", "3", "4", "5") == OK


@virtually
async def test_calls_that_wait() -> None:
    rig = EngineRig()
    parking: Parking[int] = Parking(TEN.server, FlowControl(rig.engine.limits), Shares(TEN.auth))

    def waits(user: User | None, client_id: str) -> bool:
        try:
            parking.park("g", "t", 0, lambda: None, 1_000, client_id, client_id, user)
        except TooManyRequestsError:
            return False
        return True

    assert [waits(SHOP, f"made up {n}") for n in range(6)] == [True] * 5 + [False]
    assert [waits(ELSE, f"made up {n}") for n in range(5)] == [True] * 4 + [False]
    assert waits(ADMIN, "a")
    assert not waits(ADMIN, "a")


class TestLimitsOfUsers:
    def test_hold_for_all_the_client_ids_that_a_user_makes_up(self, rig: AccessRig) -> None:
        limit = Limit(scope=Scope.USER, name="*", sends_per_s=3)
        rig.engine.limits.set(limit, rig.now_ms)
        assert [sent(rig, "orders", rig.by(client_id=f"made up {n}")) for n in range(5)] == [
            OK, OK, OK, TOO_MANY, TOO_MANY,
        ]  # fmt: skip
        assert sent(rig, "orders", other(rig)) == OK
        rig.now_ms += 1_000
        assert sent(rig, "orders", rig.by(client_id="made up 9")) == OK

    def test_client_limits_stay_within_them(self, rig: AccessRig) -> None:
        for scope, most in ((Scope.USER, 3), (Scope.CLIENT, 2)):
            rig.engine.limits.set(Limit(scope=scope, name="*", sends_per_s=most), rig.now_ms)
        assert [sent(rig, "orders", rig.by(client_id="a")) for _ in range(3)] == [OK, OK, TOO_MANY]
        assert [sent(rig, "orders", rig.by(client_id="b")) for _ in range(2)] == [OK, TOO_MANY]

    @virtually
    async def test_of_calls_that_wait(self) -> None:
        rig = EngineRig()
        rig.engine.limits.set(Limit(scope=Scope.USER, name="shop", parked_polls=2), rig.now_ms)
        parking: Parking[int] = Parking(TEN.server, FlowControl(rig.engine.limits))
        for number in range(2):
            parking.park("g", "t", 0, lambda: None, 1_000, f"made up {number}", "", SHOP)
        with pytest.raises(TooManyRequestsError, match="user shop"):
            parking.park("g", "t", 0, lambda: None, 1_000, "made up 3", "", SHOP)
        waiter = parking.park("g", "t", 0, lambda: None, 1_000, "o", "", ELSE)
        assert isinstance(waiter.later, Later)

    def test_survive_a_crash_and_a_checkpoint(self) -> None:
        rig = EngineRig()
        limit = Limit(scope=Scope.USER, name="shop", sends_per_s=3, changed_ms=rig.now_ms)
        rig.engine.limits.set(limit, rig.now_ms)
        assert rig.crash().limits.table.all() == [limit]
        rig.checkpoint()
        assert rig.crash().limits.table.all() == [limit]
