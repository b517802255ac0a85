"""SendMessage with the property LATERMQ_DEDUP_ID: one is stored, all are answered."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from latermq_broker.config.config import DedupConfig, Flush
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import START_MS
from support.messaging import SMALL, Messaging
from support.wire_requests import message

Code: Final = definition_pb2.Code
BODY_MAX: Final = SMALL.store.message_body_bytes_max


async def refused(
    broker: Messaging, code: int, *messages: definition_pb2.Message, text: str
) -> None:
    before = broker.log_end
    response = await broker.send(*messages)
    assert (response.status.code, list(response.entries)) == (code, [])
    assert text in response.status.message
    assert broker.log_end == before


def once(name: str, dedup_id: str = "order-17", **fields: Any) -> definition_pb2.Message:
    properties = {"LATERMQ_DEDUP_ID": dedup_id}
    return message("orders", b"x", message_id=name, properties=properties, **fields)


async def test_the_second_message_of_a_dedup_id_is_answered_as_the_first_was() -> None:
    """With all that the first sender was told: ids, place, what recalls it."""
    async with Messaging() as broker:
        await broker.send(message("orders", b"x"))
        for fields in ({}, {"deliver_at_ms": START_MS + 5_000}):
            [first] = (await broker.send(once("id-1", f"of {fields}", **fields))).entries
            before = broker.log_end
            response = await broker.send(once("id-2", f"of {fields}", **fields))
            [second] = response.entries
            assert (response.status.code, first.message_id) == (Code.OK, "id-1")
            assert (first.status.message, second.status.message) == ("OK", "DUPLICATE")
            second.status.message = "OK"
            assert second == first
            assert broker.log_end == before
        assert second.recall_handle


async def test_of_a_batch_each_message_has_its_entry() -> None:
    async with Messaging() as broker:
        batch = [once("id-1"), message("orders", b"x", message_id="id-2"), once("id-3")]
        entries = (await broker.send(*batch)).entries
        assert [(one.message_id, one.status.message, one.offset) for one in entries] == [
            ("id-1", "OK", 0), ("id-2", "OK", 1), ("id-1", "DUPLICATE", 0),
        ]  # fmt: skip
        got = (await broker.receive()).messages
        assert [one.system_properties.message_id for one in got] == ["id-1", "id-2"]
        assert dict(got[0].user_properties) == {"LATERMQ_DEDUP_ID": "order-17"}


async def test_two_sends_of_one_turn_store_one() -> None:
    """And with `flush = sync` the second is not told before the first is on the disk."""
    config = replace(SMALL, store=replace(SMALL.store, flush=Flush.SYNC))
    async with Messaging(config) as broker:
        sends = [broker.send(once(f"id-{number}")) for number in range(3)]
        answers = await asyncio.gather(*sends)
        assert {answer.entries[0].message_id for answer in answers} == {"id-0"}
        assert broker.engine.store.log.durable == broker.log_end
        assert len((await broker.receive()).messages) == 1


async def test_beyond_the_bound_of_dedup_ids_nothing_is_stored() -> None:
    config = replace(SMALL, dedup=DedupConfig(bytes_max=100))
    async with Messaging(config) as broker:
        assert (await broker.send(once("id-1"))).status.code == Code.OK
        await refused(
            broker, Code.TOO_MANY_REQUESTS, once("id-2", "o" * 60), text="dedup.bytes_max"
        )
        [entry] = (await broker.send(once("id-3"))).entries
        assert entry.message_id == "id-1"


async def test_a_batch_of_ids_that_no_segment_can_hold_is_refused() -> None:
    body = b"x" * (BODY_MAX - 1_000)
    async with Messaging() as broker:
        many = [message("orders", body, properties={"a": "b"}) for _ in range(15)]
        assert (await broker.send(*many)).status.code == Code.OK
        for number, made in enumerate(many):
            made.system_properties.message_id = f"{number:010000}"
            made.user_properties["LATERMQ_DEDUP_ID"] = str(number)
        await refused(broker, Code.MESSAGE_BODY_TOO_LARGE, *many, text="together")
        for made in many:
            assert (await broker.send(made)).status.code == Code.OK
