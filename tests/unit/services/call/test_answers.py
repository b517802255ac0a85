"""Errors become statuses in one place, whatever shape an answer has."""

import asyncio
import gc
import logging
import warnings
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from latermq_broker import errors
from latermq_broker.services.call import answers
from latermq_broker.services.call.answers import (
    Caller,
    ok_status,
    reader,
    server_stream,
    status_of,
    unary,
)
from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodKind
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Status
from latermq_proto.apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from support.fake_call import CLIENT_ID, FakeCall


def refuse(status: Status, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(status=status)


def refuse_stream(status: Status, request: ReceiveMessageRequest) -> list[ReceiveMessageResponse]:
    return [ReceiveMessageResponse(status=status)]


async def call_unary(method: Method, data: bytes = b"", call: FakeCall | None = None) -> Status:
    assert method.kind is MethodKind.UNARY
    result: Any = method.handler(cast(Any, data), call or FakeCall())
    data = result if isinstance(result, bytes) else await result
    return HeartbeatResponse.FromString(data).status


async def test_a_client_id_has_a_bounded_length() -> None:
    method = unary(reader(HeartbeatRequest), lambda request, caller: b"", refuse)
    for count, code in (
        (answers.CLIENT_ID_CHARACTERS_MAX, 0),
        (answers.CLIENT_ID_CHARACTERS_MAX + 1, errors.BadRequestError.code),
    ):
        assert (await call_unary(method, call=FakeCall(client_id="c" * count))).code == code


async def test_what_an_own_reader_reads_needs_a_client_id_too() -> None:
    seen: list[bytes] = []

    def answer(request: bytes, caller: Caller) -> bytes:
        seen.append(request)
        return b""

    method = unary(lambda data, call: data, answer, refuse)
    for client_id in ("", "c" * (answers.CLIENT_ID_CHARACTERS_MAX + 1)):
        assert (await call_unary(method, b"read", FakeCall(client_id=client_id))).code != 0
    assert seen == []
    assert (await call_unary(method, b"read")).code == 0
    assert seen == [b"read"]


async def test_what_a_reader_refuses_is_refused_as_an_empty_request() -> None:
    def read(data: bytes, call: Call) -> list[bytes]:
        if data:
            raise errors.BadRequestError("not that")
        return []

    refused: list[Any] = []

    def refuse_all(status: Status, request: list[bytes]) -> HeartbeatResponse:
        refused.append(request)
        return HeartbeatResponse(status=status)

    method = unary(read, lambda request, caller: b"", refuse_all)
    assert (await call_unary(method, b"x")).code == errors.BadRequestError.code
    assert refused == [[]]


async def call_stream(method: Method, data: bytes = b"") -> list[Status]:
    assert method.kind is MethodKind.SERVER_STREAM
    result: Any = method.handler(cast(Any, data), FakeCall())
    if isinstance(result, AsyncIterator):
        result = [element async for element in result]
    elements: Sequence[bytes] = result if isinstance(result, Sequence) else await result
    return [ReceiveMessageResponse.FromString(element).status for element in elements]


def raising(error: Exception) -> Method:
    def answer(request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        raise error

    return unary(reader(HeartbeatRequest), answer, refuse)


def raising_later(error: Exception) -> Method:
    async def answer(request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        raise error

    return unary(reader(HeartbeatRequest), answer, refuse)


class TestUnary:
    async def test_a_value_is_answered_without_an_awaitable(self) -> None:
        method = unary(
            reader(HeartbeatRequest),
            lambda request, caller: HeartbeatResponse(status=ok_status()),
            refuse,
        )
        result = method.handler(cast(Any, b""), FakeCall())
        assert isinstance(result, bytes)
        assert HeartbeatResponse.FromString(result).status.code == 20000

    async def test_bytes_are_passed_on(self) -> None:
        method = unary(reader(HeartbeatRequest), lambda request, caller: b"\x0a\x00", refuse)
        assert method.handler(cast(Any, b""), FakeCall()) == b"\x0a\x00"

    async def test_the_caller_is_named(self) -> None:
        seen: list[str] = []

        async def answer(request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
            seen.append(caller.client_id)
            return HeartbeatResponse(status=ok_status())

        await call_unary(unary(reader(HeartbeatRequest), answer, refuse))
        assert seen == [CLIENT_ID]

    @pytest.mark.parametrize("client_id", ["", "   "])
    async def test_a_client_id_is_required(self, client_id: str) -> None:
        call = FakeCall(client_id="", metadata={"x-mq-client-id": client_id} if client_id else {})
        status = await call_unary(raising(AssertionError("never reached")), call=call)
        assert status.code == errors.ClientIdRequiredError.code

    async def test_unless_the_method_says_otherwise(self) -> None:
        method = unary(
            reader(HeartbeatRequest),
            lambda request, caller: HeartbeatResponse(status=ok_status()),
            refuse,
            client_id_required=False,
        )
        assert (await call_unary(method, call=FakeCall(client_id=""))).code == 20000

    @pytest.mark.parametrize("make", [raising, raising_later])
    async def test_a_request_error_gives_its_code_and_text(self, make: Any) -> None:
        status = await call_unary(make(errors.GroupNotFoundError("g")))
        assert status.code == 40403
        assert status.message == "consumer group not found: g"

    @pytest.mark.parametrize("make", [raising, raising_later])
    async def test_a_bug_is_logged_and_not_leaked(
        self, make: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR):
            status = await call_unary(make(KeyError("secret")))
        assert status.code == 50000
        assert "secret" not in status.message
        assert [record.exc_info is not None for record in caplog.records] == [True]

    @pytest.mark.parametrize("make", [raising, raising_later])
    async def test_a_failing_store_is_told_apart_from_a_bug(
        self, make: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        status = await call_unary(make(errors.StoreReadOnlyError("pwrite failed on sda")))
        assert status.code == 50001
        assert "sda" not in status.message

    @pytest.mark.parametrize("make", [raising, raising_later])
    async def test_a_full_store_is_told_in_its_own_words_and_is_no_news_to_the_log(
        self, make: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        status = await call_unary(make(errors.StoreFullError("disk full: need 2 bytes")))
        assert (status.code, status.message) == (50001, "disk full: need 2 bytes")
        assert caplog.records == []

    @pytest.mark.parametrize("make", [raising, raising_later])
    async def test_an_abort_passes_through(self, make: Any) -> None:
        with pytest.raises(CallAborted):
            await call_unary(make(CallAborted(GrpcCode.NOT_FOUND, "no")))

    async def test_bytes_that_are_no_request_are_a_bad_request(self) -> None:
        status = await call_unary(raising(AssertionError("never reached")), data=b"\xff\xff")
        assert status.code == errors.BadRequestError.code
        assert "HeartbeatRequest" in status.message


class TestServerStream:
    async def test_a_list_now_or_later(self) -> None:
        response = ReceiveMessageResponse(status=ok_status())

        async def later(request: ReceiveMessageRequest, caller: Caller) -> Any:
            return [response, response.SerializeToString()]

        now = server_stream(
            reader(ReceiveMessageRequest), lambda request, caller: [response] * 2, refuse_stream
        )
        for method in (now, server_stream(reader(ReceiveMessageRequest), later, refuse_stream)):
            assert [status.code for status in await call_stream(method)] == [20000, 20000]

    async def test_an_error_after_the_first_element_ends_the_stream_with_its_status(self) -> None:
        async def answer(
            request: ReceiveMessageRequest, caller: Caller
        ) -> AsyncIterator[ReceiveMessageResponse]:
            yield ReceiveMessageResponse(status=ok_status())
            raise errors.TopicNotFoundError("t")

        method = server_stream(reader(ReceiveMessageRequest), answer, refuse_stream)
        assert [status.code for status in await call_stream(method)] == [20000, 40402]

    async def test_an_error_before_any_element(self) -> None:
        def answer(request: ReceiveMessageRequest, caller: Caller) -> list[ReceiveMessageResponse]:
            raise errors.ForbiddenError("no")

        async def later(request: ReceiveMessageRequest, caller: Caller) -> Any:
            raise errors.ForbiddenError("no")

        for each in (answer, later):
            method = server_stream(reader(ReceiveMessageRequest), each, refuse_stream)
            assert [status.code for status in await call_stream(method)] == [40300]

    async def test_an_abort_passes_through(self) -> None:
        async def answer(
            request: ReceiveMessageRequest, caller: Caller
        ) -> AsyncIterator[ReceiveMessageResponse]:
            raise CallAborted(GrpcCode.UNAVAILABLE, "down")
            yield

        with pytest.raises(CallAborted):
            await call_stream(server_stream(reader(ReceiveMessageRequest), answer, refuse_stream))


def test_every_request_error_has_a_code_of_the_protocol() -> None:
    from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code

    kinds = [errors.RequestError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
        assert kind.code in Code.values(), kind


def test_status_of_unknown_errors_never_shows_their_text() -> None:
    assert "disk0" not in status_of(OSError("disk0")).message


async def test_a_call_that_is_cancelled_before_it_begins_leaves_nothing_unawaited() -> None:
    """A `RuntimeWarning` of a coroutine that nobody awaits is an error in tests."""
    begun: list[str] = []

    async def beat(request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        begun.append("unary")
        return HeartbeatResponse()

    async def lend(request: ReceiveMessageRequest, caller: Caller) -> list[ReceiveMessageResponse]:
        begun.append("stream")
        return []

    methods = [
        unary(reader(HeartbeatRequest), beat, refuse),
        server_stream(reader(ReceiveMessageRequest), lend, refuse_stream),
    ]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for method in methods:
            result: Any = method.handler(cast(Any, b""), FakeCall())
            work = asyncio.ensure_future(result)
            work.cancel()
            await asyncio.wait([work])
            assert work.cancelled()
            del result, work
        gc.collect()
    assert not begun
    assert not warned
