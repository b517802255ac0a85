"""Sends that share calls: who travels with whom, in which order, and whose error is whose."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from latermq import Batching, SendReceipt
from latermq._connection.batching import HELD_BYTES_MAX, Batches
from latermq.client import Client
from latermq.codes import Code
from latermq.errors import IllegalMessageError, TooManyRequestsError, UnavailableError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[..., Client]
BAD_TAG = v2.Status(code=v2.ILLEGAL_MESSAGE_TAG, message="no such tag")
BUSY = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")


def bodies(broker: ScriptedBroker) -> list[list[bytes]]:
    """List the bodies that each call sent."""
    return [[m.body for m in request.messages] for request in broker.requests("SendMessage")]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % index for index in range(count)]


async def all_of(mq: Client, sent: list[bytes], **fields: Any) -> list[Any]:
    sends = (mq.send("orders", body, **fields) for body in sent)
    return await asyncio.gather(*sends, return_exceptions=True)


@virtually
async def test_one_turn_of_the_loop_is_one_call(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        receipts = await all_of(mq, numbered(10))
    assert bodies(broker) == [numbered(10)]
    sent = [m.system_properties.message_id for m in broker.requests("SendMessage")[0].messages]
    assert [receipt.message_id for receipt in receipts] == sent


@virtually
async def test_one_after_the_other_they_do_not_wait(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        began = asyncio.get_running_loop().time()
        for body in numbered(3):
            await mq.send("orders", body)
        assert asyncio.get_running_loop().time() == began
    assert bodies(broker) == [[b"0"], [b"1"], [b"2"]]


@virtually
async def test_without_batching_each_makes_its_own(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect(batching=None) as mq:
        await all_of(mq, numbered(5))
    assert bodies(broker) == [[body] for body in numbered(5)]


@virtually
async def test_a_linger_waits_for_others(broker: ScriptedBroker, connect: Connect) -> None:
    linger = timedelta(milliseconds=5)
    async with connect(batching=Batching(linger=linger)) as mq:
        await mq.send("orders", b"first, with the route")
        loop = asyncio.get_running_loop()
        began = loop.time()
        sends = []
        for body in numbered(3):
            sends.append(asyncio.create_task(mq.send("orders", body)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*sends)
        assert loop.time() - began == pytest.approx(0.005)
    assert bodies(broker)[1:] == [numbered(3)]


@pytest.mark.parametrize(
    ("batching", "counts"),
    [(Batching(count_max=4), [4, 4, 2]), (Batching(bytes_max=3), [3, 3, 3, 1])],
)
@virtually
async def test_what_is_full_leaves(
    broker: ScriptedBroker, connect: Connect, batching: Batching, counts: list[int]
) -> None:
    async with connect(batching=batching) as mq:
        await all_of(mq, numbered(10))
    assert [len(call) for call in bodies(broker)] == counts


@virtually
async def test_kinds_do_not_mix(broker: ScriptedBroker, connect: Connect) -> None:
    broker.topics["bills"] = 1
    async with connect() as mq:
        await asyncio.gather(
            mq.send("orders", b"plain"),
            mq.send("orders", b"group", message_group="g"),
            mq.send("orders", b"delayed", delay=timedelta(seconds=1)),
            mq.send("orders", b"level", delay_level=3),
            mq.send("bills", b"elsewhere"),
            mq.send("orders", b"plain too"),
        )
    found = sorted(bodies(broker))
    assert found == [
        [b"delayed"], [b"elsewhere"], [b"group"], [b"level"], [b"plain", b"plain too"],
    ]  # fmt: skip


@virtually
async def test_a_group_is_sent_in_order_also_past_a_failure(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("SendMessage", UnavailableError("gone"), UnavailableError("gone"))
    async with connect(batching=Batching(count_max=3)) as mq:
        await all_of(mq, numbered(8), message_group="g")
    tries = bodies(broker)
    assert tries[:3] == [[b"0", b"1", b"2"]] * 3
    assert tries[3:] == [[b"3", b"4", b"5"], [b"6", b"7"]]


@virtually
async def test_each_message_has_its_own_error(broker: ScriptedBroker, connect: Connect) -> None:
    """The broker refuses any call with the bad message in it; the others are stored once."""
    inner = broker.connect

    async with connect() as mq:
        transport = inner(mq._endpoints)
        plain = transport.unary

        async def unary(path: str, request: bytes, *rest: Any) -> bytes:
            if path.endswith("/SendMessage") and b"bad" in request:
                broker.refuse("SendMessage", BAD_TAG)
            return await plain(path, request, *rest)

        transport.unary = unary  # type: ignore[method-assign, assignment]
        mq._connections._open[mq._endpoints] = transport
        found = await all_of(mq, [b"0", b"1", b"2", b"bad", b"4"])
    assert [isinstance(one, SendReceipt) for one in found] == [True, True, True, False, True]
    assert isinstance(found[3], IllegalMessageError)
    assert found[3].code == Code.ILLEGAL_MESSAGE_TAG


@virtually
async def test_what_is_nobodys_fault_is_everybodys_error(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.refuse("SendMessage", BUSY, BUSY, BUSY)
    async with connect() as mq:
        found = await all_of(mq, numbered(3))
    assert {type(one) for one in found} == {TooManyRequestsError}
    assert len({id(one) for one in found}) == 3
    assert len(bodies(broker)) == 3  # three tries of the call, not nine


@virtually
async def test_closing_sends_what_waits(broker: ScriptedBroker, connect: Connect) -> None:
    mq = connect(batching=Batching(linger=timedelta(seconds=1)))
    await mq.send("orders", b"first, with the route")
    sends = [asyncio.create_task(mq.send("orders", body)) for body in numbered(3)]
    await asyncio.sleep(0)
    await mq.close()
    assert all(isinstance(one, SendReceipt) for one in await asyncio.gather(*sends))
    assert bodies(broker)[1:] == [numbered(3)]


@virtually
async def test_who_is_cancelled_in_time_does_not_send(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect(batching=Batching(linger=timedelta(milliseconds=5))) as mq:
        await mq.send("orders", b"first, with the route")
        sends = [asyncio.create_task(mq.send("orders", body)) for body in numbered(3)]
        await asyncio.sleep(0.001)
        sends[1].cancel()
        await asyncio.gather(*sends, return_exceptions=True)
    assert bodies(broker)[1:] == [[b"0", b"2"]]


@virtually
async def test_the_first_of_a_turn_may_be_cancelled(
    broker: ScriptedBroker, connect: Connect
) -> None:
    """It gathers what the others of its turn send."""
    async with connect() as mq:
        await all_of(mq, [b"first,", b"with the route"])
        sends = [asyncio.create_task(mq.send("orders", body)) for body in numbered(3)]
        await asyncio.sleep(0)
        sends[0].cancel()
        found = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError, SendReceipt, SendReceipt]
    assert bodies(broker)[1:] == [[b"1", b"2"]]


@virtually
async def test_who_sends_alone_waits_for_nobody_until_others_come(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        for body in (b"gathers none", b"alone", b"alone"):
            await mq.send("orders", body)
        await all_of(mq, [b"alone", *numbered(3)])
        await all_of(mq, numbered(4))
    alone = [[b"gathers none"], [b"alone"], [b"alone"], [b"alone"]]
    assert bodies(broker) == [*alone, numbered(3), numbered(4)]


@virtually
async def test_of_bursts_into_a_group_only_the_first_finds_its_sender_alone(
    broker: ScriptedBroker, connect: Connect
) -> None:
    async with connect() as mq:
        await mq.send("orders", b"gathers none")
        for _ in range(2):
            await all_of(mq, numbered(4), message_group="g")
    assert bodies(broker)[1:] == [[b"0"], [b"1", b"2", b"3"], numbered(4)]


@virtually
async def test_a_group_sent_alone_keeps_its_order(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await mq.send("orders", b"gathers none")
        broker.refuse("SendMessage", UnavailableError("gone"), UnavailableError("gone"))
        await all_of(mq, numbered(4), message_group="g")
    assert bodies(broker)[1:] == [[b"0"]] * 3 + [[b"1", b"2", b"3"]]


@virtually
async def test_whose_error_is_raised_alone(broker: ScriptedBroker, connect: Connect) -> None:
    async with connect() as mq:
        await mq.send("orders", b"gathers none")
        broker.refuse("SendMessage", BAD_TAG)
        with pytest.raises(IllegalMessageError, match="no such tag") as raised:
            await mq.send("orders", b"bad")
        assert raised.value.stored is False
        assert (await mq.send("orders", b"good")).message_id


class Held:
    """Calls that last until they are let go."""

    def __init__(self, *, joins: bool = False) -> None:
        self.joins = joins
        self.called: list[list[int]] = []
        self.cancelled = 0
        self.go = asyncio.Event()
        self.batches: Batches[str, int, int] = Batches(Batching(), self._deliver)

    async def _add(self, item: int) -> int:
        if self.joins:
            return await asyncio.shield(self.batches.join("k", item, 1))
        return await self.batches.add("k", item, 1)

    async def _deliver(self, key: str, items: Any) -> list[int]:
        self.called.append(list(items))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return list(items)

    async def done(self, count: int) -> None:
        """Add so many, one after the other."""
        self.go.set()
        for item in range(100, 100 + count):
            await self._add(item)
        self.go.clear()

    async def begun(self, item: int) -> asyncio.Task[int]:
        """Add it, and return when its call is under way."""
        task = asyncio.create_task(self._add(item))
        while item not in (called for call in self.called for called in call):
            await asyncio.sleep(0)
        return task


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("before", [0, 1])
@virtually
async def test_a_lone_one_takes_its_own_call_along(joins: bool, before: int) -> None:
    held = Held(joins=joins)
    await held.done(before)
    alone = await held.begun(1)
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    assert held.cancelled == (not joins)
    held.go.set()
    await held.batches.close()
    assert held.batches._held_bytes == 0


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("before", [0, 1])
@virtually
async def test_closing_waits_for_a_lone_one(joins: bool, before: int) -> None:
    held = Held(joins=joins)
    await held.done(before)
    alone = await held.begun(1)
    closing = asyncio.create_task(held.batches.close())
    await asyncio.sleep(1)
    assert not closing.done()
    held.go.set()
    await closing
    assert await alone == 1


@virtually
async def test_of_pairs_only_the_first_finds_its_sender_alone() -> None:
    held = Held()
    await held.done(1)
    for first in (1, 3):
        pair = [asyncio.create_task(held.batches.add("k", first + more, 1)) for more in range(2)]
        for _ in range(3):  # turns: both calls are under way before one ends
            await asyncio.sleep(0)
        held.go.set()
        await asyncio.gather(*pair)
        held.go.clear()
    assert held.called[1:] == [[1], [2], [3, 4]]


@virtually
async def test_closing_sends_what_its_turn_gathers() -> None:
    held = Held()
    held.go.set()
    sends = [asyncio.create_task(held.batches.add("k", item, 1)) for item in range(2)]
    await asyncio.sleep(0)
    await held.batches.close()
    assert await asyncio.gather(*sends) == [0, 1]
    assert held.called == [[0, 1]]
    assert held.batches._lanes == {}


@virtually
async def test_calls_under_way_and_bytes_held_are_bounded() -> None:
    under_way = most = 0

    async def deliver(key: object, items: Any) -> list[SendReceipt]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1)
        under_way -= 1
        return [SendReceipt(topic="t", message_id=str(i), queue_offset=0) for i in items]

    batches: Batches[str, int, SendReceipt] = Batches(Batching(count_max=1), deliver)
    sends = [asyncio.create_task(batches.add("k", i, HELD_BYTES_MAX // 4)) for i in range(10)]
    await asyncio.sleep(0.5)
    assert under_way == 4
    receipts = await asyncio.gather(*sends)
    assert [receipt.message_id for receipt in receipts] == [str(i) for i in range(10)]
    await asyncio.gather(*(batches.add("k", i, 1) for i in range(100)))
    assert most == 8
    assert batches._lanes == {}
    assert batches._held_bytes == 0


@pytest.mark.parametrize(
    "fields", [{"linger": timedelta(seconds=2)}, {"count_max": 0}, {"bytes_max": 0}]
)
def test_bounds(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Batching(**fields)


@virtually
async def test_a_bug_of_ours_is_heard_of() -> None:
    async def deliver(key: object, items: Any) -> list[SendReceipt]:
        raise RuntimeError("a bug")

    batches: Batches[str, int, SendReceipt] = Batches(Batching(), deliver)
    with pytest.raises(RuntimeError, match="a bug"):
        await batches.add("k", 1, 1)
