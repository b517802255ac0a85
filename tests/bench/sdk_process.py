"""One client library doing one thing, in a process of its own: ours, or the official one.

    python -m bench.sdk_process '{"client": "lean", "do": "send", "endpoint": …, "topic": …}'

`client`: "lean" or "grpcio", our SDK on that transport; "official", the RocketMQ client. Both send
1 KiB with `concurrency` calls that wait, and receive 32 a call and acknowledge each message. Prints
JSON: messages a second, and CPU microseconds of this process for a message. `traced`: sends, and
calls of a listener, under OpenTelemetry: "api" alone, or with the "sdk", which exports nowhere.
`ids`: each send has a dedup id of its own, which begins with this.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

BODY: Final = bytes(range(256)) * 4
RECEIVE_COUNT: Final = 32
INVISIBLE_S: Final = 60
WARM_UP: Final = 200


class Stopwatch:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def figures(self, count: int) -> dict[str, float]:
        wall_s = time.perf_counter() - self._wall_s
        cpu_s = time.process_time() - self._cpu_s
        return {"per_second": count / wall_s, "CPU us": cpu_s / count * 1e6}


async def shared(count: int, concurrency: int, work: Callable[[], Awaitable[int]]) -> None:
    """Have `concurrency` workers do it until `count` is reached."""
    left = count

    async def worker() -> None:
        nonlocal left
        while left > 0:
            done = await work()  # `left -= await …` would read it before the others' turn
            left -= done

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def ours(spec: dict[str, Any]) -> dict[str, float]:
    import latermq

    topic, count, concurrency = spec["topic"], spec["count"], spec["concurrency"]
    async with latermq.connect(spec["endpoint"], transport=spec["client"]) as mq:
        begins, numbers = spec.get("ids"), itertools.count()

        async def send() -> int:
            await mq.send(topic, BODY, dedup_id=f"{begins}{next(numbers)}" if begins else None)
            return 1

        if spec.get("traced"):
            mq.use(telemetry(spec["traced"]))
        if spec["do"] == "listen":
            return await listened(mq, spec)
        if spec["do"] == "send":
            await shared(WARM_UP, concurrency, send)
            watch = Stopwatch()
            await shared(count, concurrency, send)
            return watch.figures(count)
        async with mq.simple_consumer(topic, group=spec["group"]) as consumer:

            async def receive() -> int:
                found = await consumer.receive(
                    RECEIVE_COUNT, wait=timedelta(seconds=1), invisible=timedelta(minutes=1)
                )
                await asyncio.gather(*(delivery.ack() for delivery in found))
                return len(found)

            await shared(WARM_UP, concurrency, receive)
            watch = Stopwatch()
            await shared(count, concurrency, receive)
            return watch.figures(count)


async def listened(mq: Any, spec: dict[str, Any]) -> dict[str, float]:
    """Be handed `count` messages, each acknowledged by the listener's end."""
    count, began, ended = 0, asyncio.Event(), asyncio.Event()
    consumer = mq.push_consumer(spec["topic"], group=spec["group"], concurrency=spec["concurrency"])

    async def listener(delivery: Any) -> None:
        nonlocal count
        count += 1
        if count == WARM_UP:
            began.set()
        if count == WARM_UP + spec["count"]:
            ended.set()

    consumer.listener(listener)
    await consumer.start()
    await began.wait()
    watch, from_count = Stopwatch(), count
    await ended.wait()
    return watch.figures(count - from_count)


def telemetry(traced: str) -> Any:
    """Make the middleware, after the SDK it finds."""
    from latermq.otel import OpenTelemetry

    if traced == "api":
        return OpenTelemetry()
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=1 << 16))
    return OpenTelemetry(tracer_provider=tracers, meter_provider=MeterProvider())


def like_the_main_thread() -> None:
    """Give this thread an event loop: the official client may open a stream in it."""
    asyncio.set_event_loop(asyncio.new_event_loop())


def official_send(spec: dict[str, Any]) -> dict[str, float]:
    from rocketmq import ClientConfiguration, Credentials, Message, Producer

    producer = Producer(ClientConfiguration(spec["endpoint"], Credentials()), (spec["topic"],))
    producer.startup()

    def send(count: int) -> None:
        """In flight: `concurrency`, by the client's own asynchronous send."""
        waiting = []
        for _ in range(count):
            message = Message()
            message.topic, message.body = spec["topic"], BODY
            waiting.append(producer.send_async(message))
            if len(waiting) >= spec["concurrency"]:
                waiting.pop(0).result()
        for one in waiting:
            one.result()

    try:
        send(WARM_UP)
        watch = Stopwatch()
        send(spec["count"])
        return watch.figures(spec["count"])
    finally:
        producer.shutdown()


def official_receive(spec: dict[str, Any]) -> dict[str, float]:
    from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

    configuration = ClientConfiguration(spec["endpoint"], Credentials())
    topics = {spec["topic"]: FilterExpression()}
    consumer = SimpleConsumer(configuration, spec["group"], topics)
    consumer.startup()

    def receive(_: int) -> int:
        found = consumer.receive(RECEIVE_COUNT, INVISIBLE_S) or []
        list(acks.map(consumer.ack, found))  # `ack_async` gives nothing to wait for
        return len(found)

    def receive_all(count: int) -> None:
        with ThreadPoolExecutor(spec["concurrency"], initializer=like_the_main_thread) as pool:
            left = count
            while left > 0:
                left -= sum(pool.map(receive, range(spec["concurrency"])))

    acks = ThreadPoolExecutor(RECEIVE_COUNT, initializer=like_the_main_thread)
    try:
        receive_all(WARM_UP)
        watch = Stopwatch()
        receive_all(spec["count"])
        return watch.figures(spec["count"])
    finally:
        acks.shutdown()
        consumer.shutdown()


def main() -> None:
    spec = json.loads(sys.argv[1])
    if spec["client"] != "official":
        figures = asyncio.run(ours(spec))
    elif spec["do"] == "send":
        figures = official_send(spec)
    else:
        figures = official_receive(spec)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
