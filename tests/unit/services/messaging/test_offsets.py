"""PullMessage, QueryOffset, GetOffset, UpdateOffset: positions, codes, the stream of a pull."""

import asyncio
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.messaging import Messaging
from support.virtual_loop import InlineThreads, virtually
from support.wire_requests import duration, message, resource, timestamp

Code: Final = definition_pb2.Code


def queue(topic: str = "orders", queue_id: int = 0) -> definition_pb2.MessageQueue:
    return definition_pb2.MessageQueue(topic=resource(topic), id=queue_id)


def pull_request(
    offset: int = 0,
    *,
    topic: str = "orders",
    group: str = "readers",
    queue_id: int = 0,
    count: int = 32,
    wait_ms: int = 0,
    tags: str = "*",
) -> service_pb2.PullMessageRequest:
    return service_pb2.PullMessageRequest(
        group=resource(group),
        message_queue=queue(topic, queue_id),
        offset=offset,
        batch_size=count,
        filter_expression=definition_pb2.FilterExpression(expression=tags),
        long_polling_timeout=duration(wait_ms),
    )


async def pull(
    broker: Messaging, *offset: int, call: FakeCall | None = None, **fields: Any
) -> tuple[int, list[bytes], int]:
    """(code, bodies, next offset) of a stream whose order is checked."""
    elements = await broker.stream("PullMessage", pull_request(*offset, **fields), call)
    kinds = [element.WhichOneof("content") for element in elements]
    assert kinds == ["status", *["message"] * (len(kinds) - 2), "next_offset"]
    bodies = [element.message.body for element in elements[1:-1]]
    return elements[0].status.code, bodies, elements[-1].next_offset


async def filled(broker: Messaging, *bodies: bytes, tag: str = "") -> None:
    await broker.send(*(message("orders", body, tag=tag) for body in bodies))


def requests(topic: str, queue_id: int, group: str = "g") -> dict[str, Any]:
    return {
        "UpdateOffset": service_pb2.UpdateOffsetRequest(
            group=resource(group), message_queue=queue(topic, queue_id)
        ),
        "GetOffset": service_pb2.GetOffsetRequest(
            group=resource(group), message_queue=queue(topic, queue_id)
        ),
        "QueryOffset": service_pb2.QueryOffsetRequest(message_queue=queue(topic, queue_id)),
        "PullMessage": pull_request(topic=topic, queue_id=queue_id, group=group),
    }


async def code_of(broker: Messaging, rpc: str, request: Any, call: FakeCall | None = None) -> int:
    if rpc == "PullMessage":
        status = (await broker.stream(rpc, request, call))[0].status
    else:
        status = (await broker.call(rpc, request, call)).status
    return int(status.code)


@pytest.mark.parametrize("rpc", ["UpdateOffset", "GetOffset", "QueryOffset", "PullMessage"])
async def test_names_and_what_is_missing(rpc: str) -> None:
    async with Messaging() as broker:
        before = broker.log_end
        assert await code_of(broker, rpc, requests("", 0)[rpc]) == Code.ILLEGAL_TOPIC
        assert await code_of(broker, rpc, requests("orders", 0)[rpc]) == Code.TOPIC_NOT_FOUND
        if rpc != "QueryOffset":
            request = requests("orders", 0, group=" ")[rpc]
            assert await code_of(broker, rpc, request) == Code.ILLEGAL_CONSUMER_GROUP
        assert broker.log_end == before
        await filled(broker, b"x")
        for queue_id in (-1, 1, 2**31 - 1):
            request = requests("orders", queue_id)[rpc]
            assert await code_of(broker, rpc, request) == Code.BAD_REQUEST
        no_id = FakeCall(client_id="")
        request = requests("orders", 0)[rpc]
        assert await code_of(broker, rpc, request, no_id) == Code.CLIENT_ID_REQUIRED


async def test_a_pull_reads_by_position_without_a_lease() -> None:
    async with Messaging() as broker:
        await filled(broker, b"0", b"1", b"2")
        for _ in range(2):
            assert await pull(broker, 1) == (Code.OK, [b"1", b"2"], 3)
        assert await pull(broker, 0, count=2) == (Code.OK, [b"0", b"1"], 2)
        assert await pull(broker, 0, count=-1) == (Code.OK, [b"0"], 1)
        assert await pull(broker, 3) == (Code.MESSAGE_NOT_FOUND, [], 3)
        assert await pull(broker, 4) == (Code.ILLEGAL_OFFSET, [], 3)  # the one to go on from
        assert await pull(broker, -1) == (Code.ILLEGAL_OFFSET, [], 0)
        assert await pull(broker, 2**62) == (Code.ILLEGAL_OFFSET, [], 3)
        assert await pull(broker, 7, topic="nowhere") == (Code.TOPIC_NOT_FOUND, [], 7)
        got = (await broker.receive(group="readers")).messages
        assert [one.system_properties.delivery_attempt for one in got] == [1, 1, 1]


async def test_a_pulled_message_has_its_place_and_no_handle() -> None:
    async with Messaging() as broker:
        await filled(broker, b"0", b"1")
        request = pull_request(1)
        element = (await broker.stream("PullMessage", request))[1]
        system = element.message.system_properties
        assert element.message.topic == request.message_queue.topic
        assert (system.queue_id, system.queue_offset) == (0, 1)
        assert not system.HasField("receipt_handle")
        assert system.body_digest.checksum


async def test_a_pull_has_a_cap() -> None:
    async with Messaging() as broker:
        await filled(broker, *[b"x"] * 40)
        _, bodies, next_offset = await pull(broker, 0, count=1_000)
        assert (len(bodies), next_offset) == (32, 32)


async def test_a_pull_passes_over_what_it_does_not_want() -> None:
    async with Messaging() as broker:
        await filled(broker, *[b"x"] * 2_500, tag="common")
        await filled(broker, b"here", tag="rare")
        assert await pull(broker, 0, tags="rare") == (Code.OK, [b"here"], 2_501)
        assert await pull(broker, 0, tags="none") == (Code.MESSAGE_NOT_FOUND, [], 2_501)
        assert (await pull(broker, 0, tags="||"))[0] == Code.ILLEGAL_FILTER_EXPRESSION


async def test_a_pull_waits_for_the_next_message_and_all_who_wait_see_it() -> None:
    async with Messaging() as broker:
        await filled(broker, b"0")
        tasks = [
            asyncio.ensure_future(pull(broker, 1, wait_ms=20_000, tags=tags))
            for tags in ("*", "*", "T")
        ]
        await broker.settle()
        await filled(broker, b"1", tag="other")
        await broker.settle()
        assert [task.done() for task in tasks] == [True, True, False]
        assert tasks[0].result() == tasks[1].result() == (Code.OK, [b"1"], 2)
        await filled(broker, b"2", tag="T")
        await broker.settle()
        assert tasks[2].result() == (Code.OK, [b"2"], 3)


@virtually
async def test_a_pull_that_waited_in_vain_goes_on_behind_what_it_passed_over() -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        await filled(broker, b"0")
        task = asyncio.ensure_future(pull(broker, 1, wait_ms=20_000, tags="T"))
        await broker.settle()
        await filled(broker, b"1", tag="other")
        assert await task == (Code.MESSAGE_NOT_FOUND, [], 2)


async def test_a_puller_who_goes_away_is_forgotten() -> None:
    async with Messaging() as broker:
        await filled(broker, b"0")
        call = FakeCall()
        task = asyncio.ensure_future(pull(broker, 1, wait_ms=20_000, call=call))
        await broker.settle()
        task.cancel()
        call.cancel()
        await filled(broker, b"1")
        await broker.settle()
        assert task.cancelled()


@virtually
async def test_a_pull_that_waits_sees_nothing_of_a_topic_made_anew() -> None:
    """It went on at its offset in the new one, past what that had below."""
    async with Messaging(threads=InlineThreads()) as broker:
        for wanting in ("*", "T"):
            await filled(broker, b"0")
            task = asyncio.ensure_future(pull(broker, 1, wait_ms=20_000, tags=wanting))
            await broker.settle()
            broker.engine.topics.delete("orders", START_MS)
            await filled(broker, b"1", b"2")
            assert await task == (Code.TOPIC_NOT_FOUND, [], 1)
            broker.engine.topics.delete("orders", START_MS)


@virtually
async def test_a_pull_whose_topic_is_deleted_is_told_so_when_its_time_is_over() -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        await filled(broker, b"0")
        task = asyncio.ensure_future(pull(broker, 1, wait_ms=20_000))
        await broker.settle()
        broker.engine.topics.delete("orders", START_MS)
        assert await task == (Code.TOPIC_NOT_FOUND, [], 1)
        assert broker.engine.catalog.topics() == []


async def test_where_a_queue_begins_and_ends() -> None:
    async with Messaging() as broker:
        await filled(broker, b"0", b"1")
        await broker.advance(1_000)
        await filled(broker, b"2")

        async def ask(policy: int, at_ms: int | None = None) -> tuple[int, int]:
            request = service_pb2.QueryOffsetRequest(message_queue=queue())
            request.query_offset_policy = policy  # type: ignore[assignment]
            if at_ms is not None:
                request.timestamp.CopyFrom(timestamp(at_ms))
            response = await broker.call("QueryOffset", request)
            return response.status.code, response.offset

        assert await ask(definition_pb2.BEGINNING) == (Code.OK, 0)
        assert await ask(definition_pb2.END) == (Code.OK, 3)
        for at_ms, offset in (
            (START_MS - 1, 0), (START_MS, 0), (START_MS + 1, 2), (START_MS + 1_001, 3), (0, 0),
        ):  # fmt: skip
            assert await ask(definition_pb2.TIMESTAMP, at_ms) == (Code.OK, offset)
        assert (await ask(definition_pb2.TIMESTAMP))[0] == Code.BAD_REQUEST
        assert (await ask(77))[0] == Code.BAD_REQUEST


async def test_a_groups_offset_is_kept_and_is_where_it_goes_on() -> None:
    async with Messaging() as broker:
        await filled(broker, b"0", b"1", b"2")
        get = service_pb2.GetOffsetRequest(group=resource("billing"), message_queue=queue())
        response = await broker.call("GetOffset", get)
        assert response.status.code == Code.CONSUMER_GROUP_NOT_FOUND
        broker.engine.ensure_group("billing", START_MS)
        assert (await broker.call("GetOffset", get)).status.code == Code.OFFSET_NOT_FOUND
        update = service_pb2.UpdateOffsetRequest(
            group=resource("billing"), message_queue=queue(), offset=2
        )
        assert (await broker.call("UpdateOffset", update)).status.code == Code.OK
        response = await broker.call("GetOffset", get)
        assert (response.status.code, response.offset) == (Code.OK, 2)
        assert [one.body for one in (await broker.receive()).messages] == [b"2"]
        for offset in (-1, 4):
            update.offset = offset
            before = broker.log_end
            assert (await broker.call("UpdateOffset", update)).status.code == Code.ILLEGAL_OFFSET
            assert broker.log_end == before


@settings(max_examples=100, deadline=None)
@given(rpc=st.sampled_from(sorted(requests("orders", 0))), data=st.data())
async def test_junk_is_answered(rpc: str, data: st.DataObject) -> None:
    request = bytearray(requests("orders", 0)[rpc].SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        request[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
    request += data.draw(st.binary(max_size=20))
    async with Messaging() as broker:
        call = FakeCall(remaining_ms=1)
        assert await code_of(broker, rpc, bytes(request), call) in range(20_000, 50_000)


async def test_a_pull_takes_what_there_is_room_for_and_nothing_without() -> None:
    async with Messaging() as broker:
        for _ in range(4):
            await filled(broker, bytes(1_000))
        call = FakeCall()
        call.room_bytes = 2_500
        code, bodies, next_offset = await pull(broker, 0, call=call)
        assert (code, len(bodies), next_offset) == (Code.OK, 2, 2)
        assert call.reserved_bytes > 2_000
        call.room_bytes = 0
        code, bodies, next_offset = await pull(broker, 2, call=call)
        assert (code, bodies, next_offset) == (Code.TOO_MANY_REQUESTS, [], 2)
