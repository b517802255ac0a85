"""OpenTelemetry: batches, transactions, loops of one's own, traces that are only linked."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import latermq
from latermq import Message
from latermq.errors import LaterMQError, MessageTooLargeError
from latermq.otel import OpenTelemetry
from latermq.testing import HeldBroker


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracers(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def trace_ids(spans: tuple[ReadableSpan, ...]) -> list[int]:
    return [span.context.trace_id for span in spans if span.context is not None]


async def test_batches_and_half_messages_carry_one_trace(
    latermq_time: HeldBroker, exporter: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    async with latermq_time.connect() as mq:
        mq.use(OpenTelemetry(tracer_provider=tracers))
        await mq.send_batch("orders", [Message(b"1"), Message(b"2", properties={"a": "b"})])
        async with mq.transaction("orders", b"3") as transaction:
            pass
        with pytest.raises(LaterMQError):
            await mq.send("no such name", b"4")
    batch, half, refused = exporter.get_finished_spans()
    assert (batch.attributes or {})["messaging.batch.message_count"] == 2
    assert (half.attributes or {})["messaging.message.id"] == transaction.message_id
    assert refused.status.status_code is StatusCode.ERROR
    sent = latermq_time.sent("orders")
    carried = [each.properties["traceparent"].split("-")[1] for each in sent]
    first, second = (f"{each:032x}" for each in trace_ids((batch, half)))
    assert carried == [first, first, second]
    assert sent[1].properties["a"] == "b"


async def test_attempts_in_a_loop_of_one_s_own_and_in_traces_of_their_own(
    latermq_time: HeldBroker, exporter: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    telemetry = OpenTelemetry(tracer_provider=tracers, join=False)
    async with latermq_time.connect() as mq:
        mq.use(telemetry)
        await mq.send("orders", b"1")
        delivery = await anext(mq.push_consumer("orders", group="billing"))
        async with delivery:
            with telemetry.attempt(delivery):
                raise ValueError("no")
    send, attempt = exporter.get_finished_spans()
    assert len(set(trace_ids((send, attempt)))) == 2
    assert attempt.parent is None
    assert send.context is not None
    assert [link.context.span_id for link in attempt.links] == [send.context.span_id]
    assert (attempt.attributes or {})["messaging.consumer.group.name"] == "billing"
    assert (attempt.attributes or {})["error.type"] == "ValueError"


async def test_who_was_sent_by_nobody_that_traces_begins_a_trace(
    latermq_time: HeldBroker, exporter: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    app = latermq.App()
    app.use(OpenTelemetry(tracer_provider=tracers))

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> latermq.ConsumeResult | None:
        return latermq.RECONSUME_LATER if order == b"1" else None

    @app.listener("numbers", group="billing")
    async def add(number: int) -> None: ...

    async with latermq_time.working(app), latermq_time.connect() as stranger:
        await stranger.send("orders", b"1", message_group="ann")
        await latermq_time.settle()
        await stranger.send("numbers", b"x")
        await latermq_time.settle()
    later, unfit = exporter.get_finished_spans()
    assert (later.links, unfit.links) == ((), ())
    assert (later.attributes or {})["messaging.rocketmq.message.group"] == "ann"
    assert later.status.description == "reconsume later"
    assert unfit.status.description == "dead-lettered"


@pytest.mark.parametrize("tight", ["bytes", "count", "half", "dedup"])
async def test_a_message_at_the_limit_goes_without_its_trace(
    latermq_time: HeldBroker, tracers: TracerProvider, caplog: pytest.LogCaptureFixture, tight: str
) -> None:
    """The largest that the broker takes is taken with a trace around it, too."""
    many = {f"p{number}": "é" for number in range(128)}
    full = Message(b"1", tag="t", keys=("é",), properties={"a": "x" * (16_384 - 4)})
    if tight == "count":
        full = Message(b"1", properties=many)
    elif tight == "dedup":
        full = Message(b"1", properties=dict(list(many.items())[:127]), dedup_id="17")
    async with latermq_time.connect() as mq, latermq_time.connect() as plain:
        telemetry = OpenTelemetry(tracer_provider=tracers)
        mq.use(telemetry)
        if tight == "half":
            async with mq.transaction("orders", b"1", properties={"a": "x" * (16_384 - 1)}):
                pass
        else:
            await mq.send_batch("orders", [full, Message(b"2")])
        await mq.send("orders", b"3", properties={"a": "x" * (16_384 - 1)})
        for client in (mq, plain):  # which would be refused anyway, and for its own sake
            with pytest.raises(MessageTooLargeError, match="16385 bytes"):
                await client.send("orders", b"4", properties={"a": "x" * 16_384})
    sent = {each.body: "traceparent" in each.properties for each in latermq_time.sent("orders")}
    assert sent.pop(b"1") is sent.pop(b"3") is False
    assert set(sent.values()) <= {True}
    (warning,) = [each.getMessage() for each in caplog.records if "no room" in each.getMessage()]
    assert "topic orders" in warning
    assert "(traceparent)" in warning
