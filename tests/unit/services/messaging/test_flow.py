"""Flow control: what is beyond a limit is TOO_MANY_REQUESTS, and the limit is named."""

import asyncio
from typing import Final

import pytest

from latermq_broker.catalog.limits import Limit, Limits, Scope
from latermq_broker.errors import BadRequestError, NotFoundError, TooManyRequestsError
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import EngineRig
from support.fake_call import FakeCall
from support.messaging import Messaging
from support.recount import check_uses
from support.virtual_loop import InlineThreads, virtually
from support.wire_requests import message

Code: Final = definition_pb2.Code
ONE, TWO = FakeCall(client_id="one"), FakeCall(client_id="two")


def client(name: str = "*", **fields: int) -> Limit:
    return Limit(scope=Scope.CLIENT, name=name, **fields)


def group(name: str = "*", **fields: int) -> Limit:
    return Limit(scope=Scope.GROUP, name=name, **fields)


class TestTable:
    def test_an_own_limit_wins_field_by_field_over_that_of_every_one(self) -> None:
        limits = Limits()
        limits.put(client(sends_per_s=5, bytes_per_s=100))
        limits.put(client("c", sends_per_s=9))
        bounds = [limits.bound(Scope.CLIENT, "c", "sends_per_s")]
        bounds.append(limits.bound(Scope.CLIENT, "c", "bytes_per_s"))
        bounds.append(limits.bound(Scope.CLIENT, "d", "sends_per_s"))
        bounds.append(limits.bound(Scope.GROUP, "c", "parked_polls"))
        assert bounds == [9, 100, 5, 0]

    def test_flags_say_what_is_limited_at_all(self) -> None:
        limits = Limits()
        assert not any((limits.polls, limits.sends, limits.in_flight))
        limits.put(group("g", in_flight=1))
        assert (limits.polls, limits.sends, limits.in_flight) == (False, False, True)
        limits.remove(Scope.GROUP, "g")
        assert not limits.in_flight


class TestEngine:
    def test_limits_survive_a_crash_and_a_checkpoint(self) -> None:
        rig = EngineRig()
        rig.engine.limits.set(client(sends_per_s=5), rig.now_ms)
        rig.engine.limits.set(client(bytes_per_s=7), rig.now_ms + 1)
        rig.engine.limits.set(group("gone", in_flight=7), rig.now_ms)
        rig.engine.limits.unset(Scope.GROUP, "gone", rig.now_ms)
        expected = [client(sends_per_s=5, bytes_per_s=7, changed_ms=rig.now_ms + 1)]
        assert rig.engine.limits.table.all() == expected
        assert rig.crash().limits.table.all() == expected
        rig.checkpoint()
        rig.engine.limits.set(group("g", parked_polls=3), rig.now_ms)
        expected.append(group("g", parked_polls=3, changed_ms=rig.now_ms))
        assert rig.crash().limits.table.all() == expected
        rig.checkpoint()
        assert rig.crash().limits.table.all() == expected
        assert rig.engine.limits.table.polls

    def test_the_same_again_writes_nothing(self) -> None:
        rig = EngineRig()
        rig.engine.limits.set(client(sends_per_s=5), rig.now_ms)
        end = rig.engine.store.log.end
        rig.engine.limits.set(client(sends_per_s=5), rig.now_ms)
        assert rig.engine.store.log.end == end

    @pytest.mark.parametrize(
        "wanted",
        [
            client(),
            client(sends_per_s=-1),
            client(bytes_per_s=1 << 41),
            client(in_flight=1),
            group(sends_per_s=1),
            group(bytes_per_s=1),
        ],
    )
    def test_what_cannot_be_set(self, wanted: Limit) -> None:
        rig = EngineRig()
        end = rig.engine.store.log.end
        with pytest.raises(BadRequestError):
            rig.engine.limits.set(wanted, rig.now_ms)
        assert rig.engine.store.log.end == end

    def test_nothing_to_unset(self) -> None:
        rig = EngineRig()
        with pytest.raises(NotFoundError, match="no limit of group g is set"):
            rig.engine.limits.unset(Scope.GROUP, "g", rig.now_ms)

    def test_in_flight_counts_leases_of_all_topics(self) -> None:
        rig = EngineRig()
        rig.send("m1", "m2")
        rig.send("n1", topic="other")
        (one,) = rig.receive(count=1)
        rig.receive(topic="other")
        assert rig.engine.limits.in_flight("billing") == 2
        rig.ack(one)
        assert rig.engine.limits.in_flight("billing") == 1
        assert rig.engine.limits.in_flight("nobody") == 0

    def test_in_flight_follows_whatever_ends_a_lease(self) -> None:
        """An offset set back, an end of the lease, a restart, what is deleted and made anew."""
        rig = EngineRig()

        def held() -> int:
            check_uses(rig.engine)
            return rig.engine.limits.in_flight("billing")

        for topic in ("orders", "other"):
            rig.send("m1", "m2", "m3", topic=topic)
            rig.receive(topic=topic, lease_ms=60_000)
        assert held() == 6
        rig.engine.queues.commit("billing", "orders", 0, 1, rig.now_ms)
        assert held() == 4
        assert len(rig.receive(count=1, lease_ms=1_000)) == 1
        rig.checkpoint()
        rig.crash()
        assert held() == 5
        rig.advance(2_000)
        assert held() == 4
        rig.crash()
        assert held() == 4
        rig.engine.topics.delete("other", rig.now_ms)
        assert held() == 1
        rig.send("n1", topic="other")
        rig.receive(topic="other", lease_ms=60_000)
        assert held() == 2
        rig.crash()
        assert held() == 2
        rig.engine.groups.delete("billing", rig.now_ms)
        assert held() == 0
        rig.receive(topic="orders", count=2)
        assert held() == 2
        assert len(rig.engine._state.leased) == 1


async def test_messages_per_second() -> None:
    async with Messaging() as broker:
        broker.engine.limits.set(client("one", sends_per_s=3), broker.time_ms)
        batch = [message("orders", b"x") for _ in range(2)]
        assert (await broker.send(*batch, call=ONE)).status.code == Code.OK
        assert (await broker.send(*batch, call=ONE)).status.code == Code.OK  # one was left
        end = broker.log_end
        refused = await broker.send(message("orders", b"x"), call=ONE)
        assert refused.status.code == Code.TOO_MANY_REQUESTS
        assert "client one may send 3 messages per second" in refused.status.message
        assert not refused.entries
        assert broker.log_end == end
        assert (await broker.send(message("orders", b"x"), call=TWO)).status.code == Code.OK
        await broker.advance(1_000)
        assert (await broker.send(message("orders", b"x"), call=ONE)).status.code == Code.OK
        broker.engine.limits.unset(Scope.CLIENT, "one", broker.time_ms)
        for _ in range(20):
            assert (await broker.send(message("orders", b"x"), call=ONE)).status.code == Code.OK


async def test_bytes_per_second_of_each_client() -> None:
    async with Messaging() as broker:
        broker.engine.limits.set(client(bytes_per_s=1_000), broker.time_ms)
        assert (await broker.send(message("orders", bytes(5_000)), call=ONE)).status.code == Code.OK
        refused = (await broker.send(message("orders", b"x"), call=ONE)).status
        assert refused.code == Code.TOO_MANY_REQUESTS
        assert "client one may send 1000 bytes per second" in refused.message
        assert (await broker.send(message("orders", b"x"), call=TWO)).status.code == Code.OK
        await broker.advance(4_000)
        refused = (await broker.send(message("orders", b"x"), call=ONE)).status
        assert refused.code == Code.TOO_MANY_REQUESTS
        await broker.advance(1_000)
        assert (await broker.send(message("orders", b"x"), call=ONE)).status.code == Code.OK


async def test_messages_in_flight_of_a_group() -> None:
    async with Messaging() as broker:
        broker.engine.limits.set(group("billing", in_flight=3), broker.time_ms)
        await broker.send(*[message("orders", b"x") for _ in range(5)])
        first = await broker.receive(count_max=2)
        second = await broker.receive(count_max=2)
        assert (len(first.messages), len(second.messages)) == (2, 1)
        refused = (await broker.receive()).status
        assert refused.code == Code.TOO_MANY_REQUESTS
        assert "3 messages of group billing are in flight, at most 3 may be" in refused.message
        assert len((await broker.receive(group="shipping")).messages) == 5
        await broker.ack(first.messages[0].system_properties.receipt_handle)
        assert len((await broker.receive()).messages) == 1


async def test_one_that_waits_is_told_when_its_group_holds_enough() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        await broker.receive()
        waiting = asyncio.ensure_future(broker.receive(wait_ms=5_000))
        await broker.settle()
        broker.engine.limits.set(group(in_flight=1), broker.time_ms)
        await broker.send(message("orders", b"y"))
        assert (await waiting).status.code == Code.TOO_MANY_REQUESTS


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (client("one", parked_polls=1), "1 receives of client one wait, at most 1 may"),
        (client(parked_polls=1), "1 receives of client one wait, at most 1 may"),
        (group("billing", parked_polls=1), "1 receives of group billing wait, at most 1 may"),
    ],
)
@virtually
async def test_parked_polls(limit: Limit, words: str) -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        broker.engine.limits.set(limit, broker.time_ms)
        first = asyncio.ensure_future(broker.receive(wait_ms=5_000, call=ONE))
        await broker.settle()
        refused = (await broker.receive(wait_ms=5_000, call=ONE)).status
        assert refused.code == Code.TOO_MANY_REQUESTS
        assert words in refused.message
        other = asyncio.ensure_future(broker.receive(group="x", wait_ms=5_000, call=TWO))
        await broker.settle()
        assert not other.done()
        assert (await first).status.code == Code.MESSAGE_NOT_FOUND
        again = await broker.receive(wait_ms=5_000, call=ONE)  # its place is free
        assert again.status.code == Code.MESSAGE_NOT_FOUND
        await other


def test_no_room_for_more_limits() -> None:
    rig = EngineRig()
    table = rig.engine.limits.table
    for number in range(10_000):
        table.put(client(f"c{number}", sends_per_s=1))
    with pytest.raises(TooManyRequestsError):
        rig.engine.limits.set(client(sends_per_s=1), rig.now_ms)
