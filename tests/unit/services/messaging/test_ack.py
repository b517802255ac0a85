"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: codes, handles, repeats."""

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.engine.state.model import Backoff, DeadFilter
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import failure_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.messaging import Messaging
from support.wire_requests import ack, change_invisible, forward, message

Code: Final = definition_pb2.Code
HOUR_MS: Final = 3_600_000
HANDLES_THAT_ARE_NONE: Final = ("", "junk", "ü" * 500, "0" * 40, "0" * 100_000)
CALLS: Final[dict[str, Any]] = {
    "AckMessage": lambda topic, group: ack(topic, group, ["h"]),
    "ChangeInvisibleDuration": lambda topic, group: change_invisible(topic, group, "h", 1),
    "ForwardMessageToDeadLetterQueue": lambda topic, group: forward(topic, group, "h"),
}


async def leased(broker: Messaging, count: int = 1, **fields: Any) -> list[str]:
    """Handles of so many messages, leased for a minute."""
    await broker.send(*(message("orders", b"x") for _ in range(count)))
    fields.setdefault("invisible_ms", 60_000)
    got = (await broker.receive(**fields)).messages
    assert len(got) == count
    return [one.system_properties.receipt_handle for one in got]


async def change(
    broker: Messaging, handle: str, ms: int, *, call: FakeCall | None = None, **fields: Any
) -> tuple[int, str]:
    request = change_invisible("orders", "billing", handle, ms)
    for name, value in fields.items():
        setattr(request, name, value)
    response = await broker.call("ChangeInvisibleDuration", request, call)
    return response.status.code, response.receipt_handle


async def dead_letters(broker: Messaging) -> list[Any]:
    return list(broker.engine.dead.scan("billing", DeadFilter()).letters)


# --- all three -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rpc", CALLS)
@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("", "g", Code.ILLEGAL_TOPIC),
        ("TBW102", "g", Code.ILLEGAL_TOPIC),
        ("orders", " ", Code.ILLEGAL_CONSUMER_GROUP),
        ("orders", "g g", Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
async def test_names(rpc: str, topic: str, group: str, code: int) -> None:
    async with Messaging() as broker:
        before = broker.log_end
        response = await broker.call(rpc, CALLS[rpc](topic, group))
        assert response.status.code == code
        assert broker.log_end == before


@pytest.mark.parametrize("rpc", CALLS)
async def test_nothing_is_made_on_demand(rpc: str) -> None:
    async with Messaging() as broker:
        before = broker.log_end
        response = await broker.call(rpc, CALLS[rpc]("orders", "nobody"))
        expected = {
            "AckMessage": Code.INVALID_RECEIPT_HANDLE,
            "ChangeInvisibleDuration": Code.INVALID_RECEIPT_HANDLE,
            "ForwardMessageToDeadLetterQueue": Code.CONSUMER_GROUP_NOT_FOUND,
        }
        assert response.status.code == expected[rpc]
        assert broker.log_end == before
        assert broker.engine.catalog.group_count() == 0


@pytest.mark.parametrize("rpc", CALLS)
async def test_without_a_client_id(rpc: str) -> None:
    async with Messaging() as broker:
        response = await broker.call(rpc, CALLS[rpc]("orders", "g"), FakeCall(client_id=""))
        assert response.status.code == Code.CLIENT_ID_REQUIRED


@settings(max_examples=100, deadline=None)
@given(rpc=st.sampled_from(sorted(CALLS)), data=st.data())
async def test_junk_is_answered(rpc: str, data: st.DataObject) -> None:
    request = bytearray(CALLS[rpc]("orders", "billing").SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        request[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
    request += data.draw(st.binary(max_size=20))
    async with Messaging() as broker:
        response = await broker.call(rpc, bytes(request))
        assert Code.BAD_REQUEST <= response.status.code < Code.INTERNAL_ERROR


# --- AckMessage ----------------------------------------------------------------------------------


async def test_each_entry_has_its_result_in_order() -> None:
    async with Messaging() as broker:
        handles = await leased(broker, 3)
        request = ack("orders", "billing", [handles[0], "junk", handles[2]])
        for number, entry in enumerate(request.entries):
            entry.message_id = f"id-{number}"
        response = await broker.call("AckMessage", request)
        assert response.status.code == Code.MULTIPLE_RESULTS
        assert [entry.message_id for entry in response.entries] == ["id-0", "id-1", "id-2"]
        assert [entry.receipt_handle for entry in response.entries] == [
            handles[0], "junk", handles[2],
        ]  # fmt: skip
        assert [entry.status.code for entry in response.entries] == [
            Code.OK, Code.INVALID_RECEIPT_HANDLE, Code.OK,
        ]  # fmt: skip
        # RocketMQ's own tests look for the code's name in the text.
        assert response.entries[1].status.message.startswith("INVALID_RECEIPT_HANDLE: ")
        await broker.advance(60_000)
        assert len((await broker.receive()).messages) == 1


async def test_a_common_result_is_the_status() -> None:
    async with Messaging() as broker:
        handles = await leased(broker, 2)
        response = await broker.ack(*handles)
        assert response.status.code == Code.OK
        assert [entry.receipt_handle for entry in response.entries] == handles
        response = await broker.ack("x", "y")
        assert response.status.code == Code.INVALID_RECEIPT_HANDLE
        assert len(response.entries) == 2


@pytest.mark.parametrize("handle", HANDLES_THAT_ARE_NONE)
async def test_a_handle_that_is_none(handle: str) -> None:
    async with Messaging() as broker:
        await leased(broker)
        before = broker.log_end
        assert (await broker.ack(handle)).status.code == Code.INVALID_RECEIPT_HANDLE
        assert await change(broker, handle, 5) == (Code.INVALID_RECEIPT_HANDLE, handle)
        response = await broker.call(
            "ForwardMessageToDeadLetterQueue", forward("orders", "billing", handle)
        )
        assert response.status.code == Code.INVALID_RECEIPT_HANDLE
        assert response.status.message.startswith("INVALID_RECEIPT_HANDLE: ")
        assert broker.log_end == before


async def test_no_entries() -> None:
    async with Messaging() as broker:
        response = await broker.ack()
        assert (response.status.code, len(response.entries)) == (Code.BAD_REQUEST, 0)
        response = await broker.ack(*"x" * 4_097)
        assert (response.status.code, len(response.entries)) == (Code.BAD_REQUEST, 0)


async def test_acking_again_is_fine_while_the_lease_would_have_lasted() -> None:
    async with Messaging() as broker:
        [handle] = await leased(broker)
        for _ in range(2):
            assert (await broker.ack(handle)).status.code == Code.OK
        assert (await broker.ack(handle, handle)).status.code == Code.OK
        await broker.advance(60_000)
        assert (await broker.ack(handle)).status.code == Code.INVALID_RECEIPT_HANDLE
        assert not (await broker.receive()).messages


async def test_an_expired_handle_and_another_groups() -> None:
    async with Messaging() as broker:
        [handle] = await leased(broker)
        response = await broker.ack(handle, group="other")
        assert response.status.code == Code.INVALID_RECEIPT_HANDLE
        await broker.advance(60_000)
        assert (await broker.ack(handle)).status.code == Code.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize("rpc", CALLS)
@pytest.mark.parametrize("topic", ["refunds", "unknown", "%DLQ%billing"])
async def test_a_handle_settles_under_its_own_topic_only(rpc: str, topic: str) -> None:
    requests: dict[str, Any] = {
        "AckMessage": lambda topic, handle: ack(topic, "billing", [handle]),
        "ChangeInvisibleDuration": lambda topic, handle: change_invisible(
            topic, "billing", handle, 1
        ),
        "ForwardMessageToDeadLetterQueue": lambda topic, handle: forward(topic, "billing", handle),
    }
    async with Messaging() as broker:
        await broker.send(message("refunds", b"another topic of the same group"))
        [handle] = await leased(broker)
        before = broker.log_end
        response = await broker.call(rpc, requests[rpc](topic, handle))
        assert response.status.code == Code.INVALID_RECEIPT_HANDLE
        assert broker.log_end == before
        response = await broker.call(rpc, requests[rpc]("orders", handle))
        assert response.status.code == Code.OK
        again = response.receipt_handle if rpc == "ChangeInvisibleDuration" else handle
        repeated = await broker.call(rpc, requests[rpc](topic, again))
        assert repeated.status.code == Code.INVALID_RECEIPT_HANDLE


async def test_an_ack_settles_those_of_its_topic_and_no_others() -> None:
    async with Messaging() as broker:
        [mine] = await leased(broker)
        await broker.send(message("refunds", b"x"))
        [other] = (await broker.receive("refunds")).messages
        response = await broker.ack(mine, other.system_properties.receipt_handle)
        assert response.status.code == Code.MULTIPLE_RESULTS
        codes = [entry.status.code for entry in response.entries]
        assert codes == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
        await broker.advance(60_000)
        assert [one.body for one in (await broker.receive("refunds")).messages] == [b"x"]
        assert not (await broker.receive()).messages


# --- ChangeInvisibleDuration ---------------------------------------------------------------------


@pytest.mark.parametrize("ms", [-1, 12 * HOUR_MS + 1])
async def test_the_duration_has_bounds_and_the_handle_comes_back(ms: int) -> None:
    async with Messaging() as broker:
        [handle] = await leased(broker)
        before = broker.log_end
        assert await change(broker, handle, ms) == (Code.ILLEGAL_INVISIBLE_TIME, handle)
        assert broker.log_end == before
        assert (await broker.ack(handle)).status.code == Code.OK


async def test_a_refusal_always_echoes_the_handle() -> None:
    async with Messaging() as broker:
        for topic, group, call in (
            ("", "g", None),
            ("orders", "", None),
            ("orders", "g", None),
            ("orders", "g", FakeCall(client_id="")),
        ):
            request = change_invisible(topic, group, "mine", 5)
            response = await broker.call("ChangeInvisibleDuration", request, call)
            assert response.receipt_handle == "mine"


@pytest.mark.parametrize("ms", [1, 12 * HOUR_MS])
async def test_longer_or_shorter_gives_a_new_handle_and_kills_the_old(ms: int) -> None:
    async with Messaging() as broker:
        [old] = await leased(broker)
        code, new = await change(broker, old, ms)
        assert code == Code.OK
        assert new not in ("", old)
        assert (await broker.ack(old)).status.code == Code.INVALID_RECEIPT_HANDLE
        await broker.advance(ms - 1)
        assert not (await broker.receive()).messages
        await broker.advance(1)
        [got] = (await broker.receive()).messages
        assert got.system_properties.delivery_attempt == 2


async def test_zero_gives_it_back_at_once() -> None:
    async with Messaging() as broker:
        [handle] = await leased(broker)
        assert (await change(broker, handle, 0))[0] == Code.OK
        await broker.advance(0)
        [got] = (await broker.receive()).messages
        assert got.system_properties.delivery_attempt == 2


async def test_suspended_is_not_counted() -> None:
    async with Messaging() as broker:
        [handle] = await leased(broker)
        assert (await change(broker, handle, 500, suspend=True))[0] == Code.OK
        await broker.advance(500)
        [got] = (await broker.receive()).messages
        assert got.system_properties.delivery_attempt == 1


async def test_a_nack_tells_its_failure() -> None:
    told = failure_pb2.Failure(
        class_name="TimeoutError", text="x" * 5_000, stack_hash="0" * 16, stack="at line 1"
    )
    call = FakeCall(metadata_bin={"latermq-failure-bin": told.SerializeToString()})
    async with Messaging() as broker:
        fixed = Backoff(kind=BackoffKind.FIXED, delays_ms=(100,))
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=2, backoff=fixed, now_ms=START_MS
        )
        [handle] = await leased(broker)
        assert (await change(broker, handle, 7 * HOUR_MS, call=call))[0] == Code.OK
        await broker.advance(100)  # the group's policy wins
        [got] = (await broker.receive(invisible_ms=50)).messages
        assert got.system_properties.delivery_attempt == 2
        await broker.advance(50)
        [letter] = await dead_letters(broker)
        first = letter.attempts[0].failure
        assert first.class_name == "TimeoutError"
        assert len(first.text) == 2_048


async def test_a_nack_that_insists_waits_as_it_asks() -> None:
    failure = failure_pb2.Failure(class_name="Busy").SerializeToString()
    binary = {"latermq-failure-bin": failure}
    call = FakeCall(metadata={"latermq-wait": "insist"}, metadata_bin=binary)
    async with Messaging() as broker:
        fixed = Backoff(kind=BackoffKind.FIXED, delays_ms=(100,))
        broker.engine.groups.create(
            "billing", fifo=False, max_attempts=3, backoff=fixed, now_ms=START_MS
        )
        [handle] = await leased(broker)
        assert (await change(broker, handle, 7_000, call=call))[0] == Code.OK
        await broker.advance(6_999)
        assert (await broker.receive()).messages == []
        await broker.advance(1)
        [got] = (await broker.receive(invisible_ms=50)).messages
        assert got.system_properties.delivery_attempt == 2


async def test_a_change_that_says_so_extends_and_keeps_the_handle() -> None:
    call = FakeCall(metadata={"latermq-change": "extend"})
    async with Messaging() as broker:
        [handle] = await leased(broker)
        for _ in range(2):
            assert await change(broker, handle, 7_000, call=call) == (Code.OK, handle)
        await broker.advance(6_999)
        assert (await broker.receive()).messages == []


async def test_a_nack_that_says_so_may_be_told_again() -> None:
    failure = failure_pb2.Failure(class_name="Busy").SerializeToString()
    call = FakeCall(
        metadata={"latermq-change": "end"}, metadata_bin={"latermq-failure-bin": failure}
    )
    async with Messaging() as broker:
        [handle] = await leased(broker)
        for _ in range(2):
            assert (await change(broker, handle, 7_000, call=call))[0] == Code.OK
        assert (await change(broker, handle, 7_000))[0] == Code.INVALID_RECEIPT_HANDLE
        await broker.advance(7_000)
        [got] = (await broker.receive(invisible_ms=50)).messages
        assert got.system_properties.delivery_attempt == 2


# --- ForwardMessageToDeadLetterQueue -------------------------------------------------------------


async def test_a_forwarded_message_is_dead_and_repeats_are_fine() -> None:
    told = failure_pb2.Failure(class_name="Poison", text="never", rejected=True)
    call = FakeCall(metadata_bin={"latermq-failure-bin": told.SerializeToString()})
    async with Messaging() as broker:
        [handle] = await leased(broker)
        request = forward("orders", "billing", handle)
        for _ in range(3):
            response = await broker.call("ForwardMessageToDeadLetterQueue", request, call)
            assert response.status.code == Code.OK
        [letter] = await dead_letters(broker)
        assert (letter.reason, letter.failure.class_name) == ("rejected", "Poison")
        assert len((await broker.receive("%DLQ%billing", "auditors")).messages) == 1
        await broker.advance(60_000)
        assert not (await broker.receive()).messages


async def test_an_expired_handle_is_not_forwarded() -> None:
    async with Messaging() as broker:
        [handle] = await leased(broker)
        await broker.advance(60_000)
        request = forward("orders", "billing", handle)
        response = await broker.call("ForwardMessageToDeadLetterQueue", request)
        assert response.status.code == Code.INVALID_RECEIPT_HANDLE
        assert not await dead_letters(broker)
