"""What the Admin service asks a push consumer over its telemetry stream.

Collected as `client_cases`.
"""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from interop.client_cases import Line
from interop.official import text
from latermq_proto.apache.rocketmq.v2 import admin_pb2, admin_pb2_grpc, definition_pb2
from support.machine import patient
from support.wire_client import WireClient

Code = definition_pb2.Code
ANSWER_TIMEOUT_S = patient(20.0)


@pytest.fixture
def admin(broker: Any) -> Iterator[Any]:
    with grpc.insecure_channel(broker.endpoint) as channel:
        yield admin_pb2_grpc.AdminStub(channel)


def client_id_of(admin: Any, line: Line) -> str:
    """Of the line's one push consumer."""
    group = definition_pb2.Resource(name=line.topic)
    request = admin_pb2.ListConsumerConnectionRequest(group=group)
    [client] = admin.ListConsumerConnection(request).client_info
    return str(client.client_id)


class QuestionCases:
    def test_question_for_the_stacks(self, line: Line, admin: Any) -> None:
        consumer = line.push()
        asked = admin_pb2.PrintThreadStackTraceRequest(client_id=client_id_of(admin, line))
        told = admin.PrintThreadStackTrace(asked, timeout=ANSWER_TIMEOUT_S)
        assert told.status.code == Code.OK, told.status.message
        assert told.thread_stack_trace
        line.official.call("shutdown", name=consumer)

    def test_question_to_verify_a_message(self, line: Line, admin: Any, wire: WireClient) -> None:
        """The listener is called once more for what it has done, and the answer is its own."""
        consumer = line.push({"unloved": -1})
        for body, code in (("loved", Code.OK), ("unloved", Code.FAILED_TO_CONSUME_MESSAGE)):
            sent = line.send(body)
            line.official.wait_consumed(consumer, 1)
            before = len(line.official.consumed(consumer))
            request = admin_pb2.VerifyMessageRequest(
                group=definition_pb2.Resource(name=line.topic),
                client_id=client_id_of(admin, line),
                topic=definition_pb2.Resource(name=line.topic),
                message_id=sent["message_id"],
            )
            answer = admin.VerifyMessage(request, timeout=ANSWER_TIMEOUT_S)
            assert answer.status.code == code, answer.status.message
            consumed = line.official.wait_consumed(consumer, before + 1)
            assert text(consumed[before]) == body
        line.official.call("shutdown", name=consumer)
