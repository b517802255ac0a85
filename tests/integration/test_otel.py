"""OpenTelemetry over a message's life at a real broker: one trace from its send to its end."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import latermq
from latermq.otel import OpenTelemetry
from latermq_proto.latermq.v1 import dead_letter_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

WAIT_S: Final = patient(30)


class Telemetry:
    """An SDK of a test's own, and what it was given."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def middleware(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans of a name, the oldest first."""
        found = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Return a figure's attributes and values; of a histogram, how many."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return [
            (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_one_trace_from_the_send_over_retries_and_a_redrive(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, telemetry: Telemetry
) -> None:
    operator.create_group(name, 2, [50])
    app, bank_is_back, paid = latermq.App(sdk_broker.endpoint), asyncio.Event(), asyncio.Event()
    app.use(telemetry.middleware())

    @app.listener(name, group=name, tags="order")
    async def bill(order: str) -> None:
        assert baggage.get_baggage("shop") == "north"
        if not bank_is_back.is_set():
            raise ConnectionError("the bank is away")
        await app.client.send(f"{name}-receipts", b"paid")
        paid.set()

    def letters() -> Any:
        request = dead_letter_pb2.ListDeadLettersRequest(group=name)
        return operator.call(operator.dead_letters.ListDeadLetters, request).letters

    end, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(app.serve(end, ready=ready))
    async with asyncio.timeout(WAIT_S):
        await ready.wait()
        token = context.attach(baggage.set_baggage("shop", "north"))
        with telemetry.tracers.get_tracer("shop").start_as_current_span("checkout"):
            receipt = await bill.send("17", tag="order", keys=["17"])
        context.detach(token)
        while not letters():
            await asyncio.sleep(0.02)
        bank_is_back.set()
        redrive = dead_letter_pb2.RedriveDeadLettersRequest(group=name)
        assert list(operator.dead_letters.RedriveDeadLetters(redrive))[-1].changed_count == 1
        await paid.wait()
        end.set()
        assert await serving

    assert_one_trace(telemetry, name, receipt.message_id)
    assert_figures(telemetry, name)


def assert_one_trace(telemetry: Telemetry, name: str, message_id: str) -> None:
    (checkout,), (send,) = telemetry.spans("checkout"), telemetry.spans(f"send {name}")
    attempts = telemetry.spans(f"process {name}")
    (sent_on,) = telemetry.spans(f"send {name}-receipts")
    everything = [checkout, send, *attempts, sent_on]
    assert {ids(span)[0] for span in everything} == {ids(checkout)[0]}, "one trace"
    assert len(telemetry.exporter.get_finished_spans()) == len(everything) == 6
    parents = [span.parent.span_id if span.parent else None for span in everything]
    assert parents == [None, ids(checkout)[1], *[ids(send)[1]] * 3, ids(attempts[2])[1]]
    assert all([link.context.span_id for link in each.links] == [ids(send)[1]] for each in attempts)
    assert (send.kind, attempts[0].kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [span.status.status_code for span in attempts] == [
        StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET,
    ]  # fmt: skip
    assert [event.name for event in attempts[0].events] == ["exception"]
    said = [dict(span.attributes or {}) for span in (send, *attempts)]
    shared = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": name,
        "messaging.message.id": message_id,
        "messaging.message.body.size": 2,
        "messaging.rocketmq.message.tag": "order",
        "messaging.rocketmq.message.keys": ("17",),
    }
    for attributes, operation in zip(said, ["send", *["process"] * 3], strict=True):
        assert shared.items() <= attributes.items()
        assert attributes["messaging.operation.name"] == operation
        assert attributes["messaging.operation.type"] == operation
    assert [each["latermq.attempt"] for each in said[1:]] == [1, 2, 1]
    assert [each.get("error.type") for each in said] == [
        None, "ConnectionError", "ConnectionError", None,
    ]  # fmt: skip


def assert_figures(telemetry: Telemetry, name: str) -> None:
    about = {"messaging.consumer.group.name": name, "messaging.destination.name": name}
    consumed = telemetry.points("messaging.client.consumed.messages")
    assert {point["latermq.outcome"]: count for point, count in consumed} == {
        "failed": 2, "acknowledged": 1,
    }  # fmt: skip
    assert all(about.items() <= point.items() for point, _ in consumed)
    took = telemetry.points("messaging.process.duration")
    assert {point.get("error.type"): count for point, count in took} == {
        "ConnectionError": 2, None: 1,
    }  # fmt: skip
    assert sorted(count for _, count in telemetry.points("messaging.client.sent.messages")) == [
        1,
        1,
    ]
    assert len(telemetry.points("messaging.client.operation.duration")) == 2
