"""Sends with tries and a time of their own; consumers that pause; calls that are tried again."""

import asyncio
from datetime import timedelta

import pytest

import latermq
from latermq.errors import RequestTimeoutError
from latermq.testing import HeldBroker

SECOND = timedelta(seconds=1)


async def test_a_paused_consumer_gets_nothing_and_keeps_what_it_has(
    latermq_time: HeldBroker,
) -> None:
    began: list[bytes] = []
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer("orders", group="billing", concurrency=1)

        @consumer.listener
        async def bill(delivery: latermq.Delivery) -> None:
            began.append(delivery.body)
            await asyncio.sleep(100)

        for number in range(3):
            await mq.send("orders", b"%d" % number)
        await consumer.start()
        await latermq_time.settle()
        assert not consumer.paused
        await consumer.pause()
        assert consumer.paused
        await mq.send("orders", b"3")
        await latermq_time.advance("10m")
        assert len(began) == 1  # which is done, and acknowledged
        # The others are free for whoever asks, as if nobody had had them.
        asking = mq.simple_consumer("orders", group="billing")
        others = await asking.receive(8, invisible=SECOND)
        assert {other.attempt for other in others} == {1}
        assert {other.body for other in others} | set(began) == {b"0", b"1", b"2", b"3"}
        for other in others:
            await other.ack()
        await mq.send("orders", b"4")
        consumer.resume()
        await latermq_time.settle()
        assert began[1:] == [b"4"]


async def test_a_send_has_its_own_time(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send("orders", b"1", timeout=SECOND, tries=1)
        await mq.send_batch("orders", [latermq.Message(b"2")], timeout=SECOND, tries=2)
        slow = asyncio.create_task(_slow(mq))
        await latermq_time.advance("999ms")
        assert not slow.done()
        await latermq_time.advance("1ms")
        with pytest.raises(RequestTimeoutError, match="no answer within 1 s; it may be stored"):
            await slow
        for bad in (timedelta(0), -SECOND):
            with pytest.raises(ValueError, match="timeout must be positive"):
                await mq.send("orders", b"1", timeout=bad)
        with pytest.raises(TypeError, match="timeout must be a timedelta"):
            await mq.send("orders", b"1", timeout=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="tries must be"):
            await mq.send("orders", b"1", tries=0)
        with pytest.raises(ValueError, match="tries must be"):
            await mq.send_batch("orders", [latermq.Message(b"1")], tries=0)


async def _slow(mq: latermq.Client) -> latermq.SendReceipt:
    """Send where nobody answers: a queue of the producer that never has room."""
    batches = mq._sender()._batches
    assert batches is not None
    batches._held_bytes = 1 << 40
    try:
        return await mq.send("orders", b"1", timeout=SECOND)
    finally:
        batches._held_bytes = 0


async def test_calls_are_tried_again_after_their_waits(latermq_time: HeldBroker) -> None:
    called: list[float] = []
    loop = asyncio.get_running_loop()
    latermq_time.now()
    began = loop.time()

    @latermq.retry("1s 5s", tries=3, on=OSError)
    async def ask(answer: Exception | int) -> int:
        """Ask."""
        called.append(round(loop.time() - began, 3))
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert ask.__doc__ == "Ask."
    assert await ask(17) == 17
    failing = asyncio.create_task(ask(ConnectionError("no")))
    await latermq_time.advance("1m")
    with pytest.raises(ConnectionError, match="no"):
        await failing
    assert called == [0, 0, 1, 6]
    with pytest.raises(KeyError):
        await ask(KeyError())


def test_calls_in_threads_are_tried_again() -> None:
    called: list[int] = []

    @latermq.retry("1ms jitter 50%", tries=3)
    def ask() -> int:
        called.append(1)
        if len(called) < 3:
            raise OSError
        return len(called)

    assert ask() == 3
    for wrong in ({"tries": 0}, {"waits": "soon"}):
        with pytest.raises(ValueError, match=r"tries|backoff"):
            latermq.retry(**wrong)
    with pytest.raises(TypeError, match="a backoff is text"):
        latermq.retry(5)  # type: ignore[arg-type]


def test_a_namespace_is_refused() -> None:
    for connect in (latermq.connect, latermq.sync.connect):
        with pytest.raises(ValueError, match="no namespaces"):
            connect(namespace="shop")


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert latermq.__version__ == version("latermq")
