"""Traces and figures by OpenTelemetry: a span for each send and for each attempt at a message.

    app.use(OpenTelemetry())

The trace of a send travels in the message's properties (`traceparent`, or what the propagator in
use writes) and stays there, so every attempt, the one after a redrive too, belongs to it; a message
that has no room left for it goes without. Names
follow OpenTelemetry's conventions for messaging (1.45), as a client of RocketMQ's protocol, which
it is. Needs `pip install 'latermq[otel]'`; what is exported, and where, is the SDK's matter, and
without an SDK nothing is.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider

from latermq._values.identity import __version__
from latermq.delivery import Delivery, Outcome
from latermq.message import DEDUP_PROPERTY, ConsumeResult, Message, Received, SendReceipt
from latermq.middleware import BatchNext, HandleNext, Middleware, SendNext

__all__ = ["OpenTelemetry"]

SCHEMA: Final = "https://opentelemetry.io/schemas/1.45.0"
ATTEMPT: Final = "latermq.attempt"  # no convention has a name for it that is not another system's
OUTCOME: Final = "latermq.outcome"
SENT: Final = "messaging.client.sent.messages"
SEND_DURATION: Final = "messaging.client.operation.duration"
CONSUMED: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
# Of a message: the broker refuses more.
PROPERTIES_COUNT_MAX: Final = 128
PROPERTIES_BYTES_MAX: Final = 16_384  # keys and values, tag and keys, as UTF-8
# As the conventions advise for durations.
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

log = logging.getLogger("latermq.client")

Attributes = dict[str, str | int | Sequence[str]]


class OpenTelemetry(Middleware):
    """Makes spans and counts, for every client and app that uses it.

    Args:
        tracer_provider, meter_provider, propagator: None: the global ones.
        join: an attempt is a child of its send, in the same trace; False: it begins a trace of its
            own, with a link to the send: for messages that come weeks later.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        join: bool = True,
    ) -> None:
        self._tracer = trace.get_tracer("latermq", __version__, tracer_provider, SCHEMA)
        meter = metrics.get_meter("latermq", __version__, meter_provider, SCHEMA)
        self._sent = meter.create_counter(SENT, "{message}", "Messages that were to be sent.")
        self._consumed = meter.create_counter(
            CONSUMED, "{message}", "Messages that were delivered here, by how they left."
        )
        self._send_s = meter.create_histogram(
            SEND_DURATION, "s", "What sends took.", explicit_bucket_boundaries_advisory=BUCKETS_S
        )
        self._process_s = meter.create_histogram(
            PROCESS_DURATION, "s", "What calls of listeners took.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )  # fmt: skip
        self._propagator = propagator
        self._join = join
        self._has_warned = False

    async def send(
        self, topic: str, messages: Sequence[Message], call_next: SendNext
    ) -> Sequence[SendReceipt]:
        """Make a span around a send, and put its context into what is sent."""
        figures = _about("send", topic)
        began_s = perf_counter()
        try:
            with self._tracer.start_as_current_span(
                f"send {topic}", kind=SpanKind.PRODUCER, attributes=_sent(figures, messages)
            ) as span:
                carried: dict[str, str] = {}
                (self._propagator or propagate).inject(carried)
                if carried:
                    messages = [self._carrying(each, carried, topic) for each in messages]
                receipts = await call_next(topic, messages)
                if len(receipts) == 1:
                    span.set_attribute("messaging.message.id", receipts[0].message_id)
                return receipts
        except BaseException as error:
            figures["error.type"] = type(error).__qualname__
            raise
        finally:
            self._send_s.record(perf_counter() - began_s, figures)
            self._sent.add(len(messages), figures)

    def _carrying(self, message: Message, carried: Mapping[str, str], topic: str) -> Message:
        """Return the message with the context, or as it is where there is no room: with a warning,
        the first time."""
        traced = message.with_properties(**carried)
        if _fits(traced):
            return traced
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "a message to topic %s has no room for the context of its trace (%s): it is sent "
                "without; said once",
                topic, ", ".join(carried),
            )  # fmt: skip
        return message

    async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
        """Make a span around an attempt."""
        with self.attempt(delivery) as span:
            result = await call_next(delivery)
            if result is ConsumeResult.RECONSUME_LATER:
                _fail(span, "reconsume later")
            elif delivery.outcome not in (None, Outcome.ACKNOWLEDGED):
                _fail(span, delivery.outcome.value)
            return result

    async def handle_batch(self, deliveries: Sequence[Delivery], call_next: BatchNext) -> int:
        """Make a span around a batch, in a trace of its own, with links to all sends."""
        topic, group = deliveries[0].topic, deliveries[0].group
        figures = _about("process", topic, group)
        sent = [self._origin(each)[1] for each in deliveries]
        began_s = perf_counter()
        try:
            with self._tracer.start_as_current_span(
                f"process {topic}",
                kind=SpanKind.CONSUMER,
                links=[Link(each) for each in sent if each.is_valid],
                attributes={
                    **figures,
                    "messaging.operation.type": "process",
                    "messaging.batch.message_count": len(deliveries),
                },
            ) as span:
                done = await call_next(deliveries)
                if done < len(deliveries):
                    _fail(span, f"{done} of {len(deliveries)} done")
                return done
        except BaseException as error:
            figures["error.type"] = type(error).__qualname__
            raise
        finally:
            self._process_s.record(perf_counter() - began_s, figures)

    def _origin(self, delivery: Received) -> tuple[context.Context, trace.SpanContext]:
        """Return the context in which a message was sent, and of it the span."""
        origin = (self._propagator or propagate).extract(delivery.properties)
        return origin, trace.get_current_span(origin).get_span_context()

    @contextmanager
    def attempt(self, delivery: Received, group: str | None = None) -> Iterator[Span]:
        """Make the span of an attempt in a loop of your own; listeners have theirs already.

        async for delivery in consumer:
            async with delivery:
                with telemetry.attempt(delivery):
                    await bill(delivery.body)
        """
        if group is None and isinstance(delivery, Delivery):
            group = delivery.group
        figures = _about("process", delivery.topic, group)
        origin, sent = self._origin(delivery)
        began_s = perf_counter()
        # What else travels, such as baggage, is there for the listener, whatever its span's parent.
        token = context.attach(
            origin if self._join else trace.set_span_in_context(trace.INVALID_SPAN, origin)
        )
        try:
            with self._tracer.start_as_current_span(
                f"process {delivery.topic}",
                kind=SpanKind.CONSUMER,
                links=[Link(sent)] if sent.is_valid else None,
                attributes=_received(figures, delivery),
            ) as span:
                try:
                    yield span
                except BaseException as error:
                    figures["error.type"] = type(error).__qualname__
                    span.set_attribute("error.type", type(error).__qualname__)
                    raise
        finally:
            context.detach(token)
            self._process_s.record(perf_counter() - began_s, figures)

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Count it."""
        figures = _about("process", delivery.topic, delivery.group)
        self._consumed.add(1, {**figures, OUTCOME: outcome.name.lower()})


def _fits(message: Message) -> bool:
    """Tell whether the broker takes so many properties, so large."""
    texts = [*message.properties, *message.properties.values(), *message.keys, message.tag or ""]
    count = len(message.properties)
    if message.dedup_id is not None:
        texts += (DEDUP_PROPERTY, message.dedup_id)
        count += 1
    size = sum(len(each.encode()) for each in texts)
    return count <= PROPERTIES_COUNT_MAX and size <= PROPERTIES_BYTES_MAX


def _about(operation: str, topic: str, group: str | None = None) -> Attributes:
    about: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }
    if group is not None:
        about["messaging.consumer.group.name"] = group
    return about


def _sent(figures: Attributes, messages: Sequence[Message]) -> Attributes:
    about: Attributes = {**figures, "messaging.operation.type": "send"}
    if len(messages) == 1:
        _add_message(about, messages[0])
    else:
        about["messaging.batch.message_count"] = len(messages)
    return about


def _received(figures: Attributes, delivery: Received) -> Attributes:
    about: Attributes = {
        **figures,
        "messaging.operation.type": "process",
        "messaging.message.id": delivery.message_id,
        ATTEMPT: delivery.attempt,
    }
    _add_message(about, delivery)
    return about


def _add_message(about: Attributes, message: Message | Received) -> None:
    about["messaging.message.body.size"] = len(message.body)
    if message.tag is not None:
        about["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        about["messaging.rocketmq.message.keys"] = tuple(message.keys)
    if message.message_group is not None:
        about["messaging.rocketmq.message.group"] = message.message_group


def _fail(span: Span, why: str) -> None:
    span.set_attribute("error.type", why)
    span.set_status(StatusCode.ERROR, why)
