"""Middleware: what it sees and may change, in which order, and what its errors do."""

import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Sequence

import pytest

import latermq
from latermq import ConsumeResult, Delivery, Message, SendReceipt
from latermq.middleware import HandleNext, Middleware, Outcome, SendNext
from latermq.testing import HeldBroker

Seen = list[str]
TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("TRACE", default="none")


class Noted(Middleware):
    def __init__(self, name: str, seen: Seen) -> None:
        self.name = name
        self.seen = seen

    async def send(
        self, topic: str, messages: Sequence[Message], call_next: SendNext
    ) -> Sequence[SendReceipt]:
        self.seen.append(f"{self.name} sends {len(messages)} to {topic}")
        changed = [each.with_properties(**{self.name: "1"}) for each in messages]
        receipts = await call_next(topic, changed)
        self.seen.append(f"{self.name} sent {len(receipts)}")
        return receipts

    async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
        self.seen.append(f"{self.name} begins {delivery.attempt} for {delivery.group}")
        TRACE.set(f"{TRACE.get()} {self.name}")
        try:
            return await call_next(delivery)
        except ValueError as error:
            self.seen.append(f"{self.name} saw {error}")
            raise

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        assert delivery.outcome is outcome
        self.seen.append(f"{self.name} {outcome.value}")


class Silent(Middleware):
    """Overrides nothing, so nothing of it is called."""


async def test_the_first_one_is_outermost(latermq_time: HeldBroker) -> None:
    app, seen = latermq.App(), Seen()
    for each in (Noted("a", seen), Silent(), Noted("b", seen)):
        app.use(each)

    @app.listener("orders", group="billing", max_attempts=3)
    async def bill(order: bytes, delivery: Delivery) -> None:
        assert delivery.properties == {"a": "1", "b": "1", "mine": "1"}
        seen.append(f"bill in {TRACE.get()}")
        if delivery.attempt == 1:
            raise ValueError("no")

    async with latermq_time.working(app):
        await bill.send(b"17", properties={"mine": "1"})
        with pytest.raises(ValueError, match="in use"):
            app.use(Silent())
        await latermq_time.settle()
        sent = ["a sends 1 to orders", "b sends 1 to orders", "b sent 1", "a sent 1"]
        begun = ["a begins 1 for billing", "b begins 1 for billing", "bill in none a b"]
        assert sorted(seen[:7]) == sorted(sent + begun)
        assert seen[7:] == ["b saw no", "a saw no", "a given back", "b given back"]
        seen.clear()
        await latermq_time.advance("1m")
        assert seen[1:] == [
            "b begins 2 for billing", "bill in none a b", "a acknowledged", "b acknowledged",
        ]  # fmt: skip
    assert [type(each) for each in app.middleware] == [Noted, Silent, Noted]
    assert latermq_time.sent("orders")[0].properties["mine"] == "1"


async def test_what_it_raises_is_what_the_listener_raised(latermq_time: HeldBroker) -> None:
    """The rules of the listener are applied to what comes out of the middleware."""

    class Translated(Middleware):
        async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
            try:
                return await call_next(delivery)
            except KeyError as error:
                raise LookupError("no such customer") from error

    class Skipped(Middleware):
        async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
            return None if delivery.body == b"skip" else await call_next(delivery)

    app, called = latermq.App(), list[bytes]()
    app.use(Translated())
    app.use(Skipped())

    @app.listener("orders", group="billing", dead_letter_on=LookupError)
    def bill(order: bytes) -> None:
        called.append(order)
        raise KeyError("ann")

    async with latermq_time.working(app):
        await bill.send(b"skip")
        await bill.send(b"17")
        await latermq_time.advance("1s")
    assert called == [b"17"]
    (letter,) = latermq_time.dead("billing")
    assert (letter.kind, letter.text) == ("LookupError", "no such customer")
    assert latermq_time.pending() == []


async def test_every_way_to_send_goes_through_it(latermq_time: HeldBroker) -> None:
    seen = Seen()
    async with latermq_time.connect() as mq:
        mq.use(Noted("a", seen))
        await mq.send("orders", b"1")
        assert len(await mq.send_batch("orders", [Message(b"2"), Message(b"3")])) == 2
        async with mq.transaction("orders", b"4") as transaction:
            assert transaction.message_id
    assert [line for line in seen if "sends" in line] == [
        "a sends 1 to orders", "a sends 2 to orders", "a sends 1 to orders",
    ]  # fmt: skip
    assert {each.properties["a"] for each in latermq_time.sent("orders")} == {"1"}


async def test_it_can_neither_lose_nor_add_messages(latermq_time: HeldBroker) -> None:
    class Halved(Middleware):
        async def send(
            self, topic: str, messages: Sequence[Message], call_next: SendNext
        ) -> Sequence[SendReceipt]:
            return await call_next(topic, messages[:1])

    class Forgetful(Middleware):
        async def send(
            self, topic: str, messages: Sequence[Message], call_next: SendNext
        ) -> Sequence[SendReceipt]:
            await call_next(topic, messages)
            return []

    both = [Message(b"2"), Message(b"3")]
    async with latermq_time.connect() as mq, latermq_time.connect() as other:
        mq.use(Halved())
        await mq.send("orders", b"1")
        with pytest.raises(ValueError, match="made 1 messages of 2"):
            await mq.send_batch("orders", both)
        other.use(Forgetful())
        with pytest.raises(ValueError, match="returned 0 receipts of 2"):
            await other.send_batch("orders", both)
        with pytest.raises(TypeError, match=r"must be a latermq\.middleware\.Middleware"):
            mq.use(Halved)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be"):
            latermq.App().use(None)  # type: ignore[arg-type]


async def test_the_trace_of_a_call_reaches_its_thread(latermq_time: HeldBroker) -> None:
    app, seen = latermq.App(), Seen()
    app.use(Noted("a", seen))

    @app.listener("orders", group="billing")
    def bill(order: bytes) -> None:
        seen.append(TRACE.get())

    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.settle()
    assert "none a" in seen


async def test_an_error_in_settled_is_told_and_goes_no_further(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Middleware):
        def settled(self, delivery: Delivery, outcome: Outcome) -> None:
            raise RuntimeError("full")

    seen = Seen()
    async with latermq_time.connect() as mq:
        mq.use(Broken())
        mq.use(Noted("a", seen))
        await mq.send_batch("orders", [Message(b"1"), Message(b"2")])
        seen.clear()
        async with await anext(mq.push_consumer("orders", group="billing")):
            pass
        (other,) = await mq.simple_consumer("orders", group="mailing").receive()
        await other.nack()
    assert seen == ["a acknowledged", "a given back", "a returned"][: len(seen)]
    assert seen[:2] == ["a acknowledged", "a given back"]
    records = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(records) == len(seen)
    assert "middleware failed" in records[0].getMessage()


class Twice(Middleware):
    """Goes on again, whatever came of the first time."""

    async def send(
        self, topic: str, messages: Sequence[Message], call_next: SendNext
    ) -> Sequence[SendReceipt]:
        with contextlib.suppress(ConnectionError):
            await call_next(topic, messages)
        return await call_next(topic, messages)

    async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
        with contextlib.suppress(ConnectionError):
            await call_next(delivery)
        return await call_next(delivery)


class Flaky(Middleware):
    """Fails the first time."""

    def __init__(self) -> None:
        self.calls = 0

    async def send(
        self, topic: str, messages: Sequence[Message], call_next: SendNext
    ) -> Sequence[SendReceipt]:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("bank is closed")
        return await call_next(topic, messages)


async def test_it_goes_on_once_or_a_message_would_be_two(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        mq.use(Twice())
        said = r"^Twice\.send calls call_next again, which did not raise: it goes on once$"
        with pytest.raises(RuntimeError, match=said):
            await mq.send("orders", b"1")
        with pytest.raises(RuntimeError, match=said):
            async with mq.transaction("orders", b"2"):
                raise AssertionError("its half message failed")
    assert [each.body for each in latermq_time.sent("orders")] == [b"1"]


async def test_what_raised_may_be_tried_again(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq, latermq_time.connect() as other:
        for each in (Twice(), Flaky()):
            mq.use(each)
        await mq.send("orders", b"1")
        for each in (Twice(), Flaky()):
            other.use(each)
        async with other.transaction("orders", b"2"):
            pass
    assert [each.body for each in latermq_time.sent("orders")] == [b"1", b"2"]


async def test_a_listener_is_called_once_an_attempt(latermq_time: HeldBroker) -> None:
    app, called = latermq.App(), list[bytes]()
    app.use(Twice())

    @app.listener("orders", group="billing", max_attempts=1)
    async def bill(order: bytes) -> None:
        called.append(order)

    @app.listener("bills", group="billing", max_attempts=1)
    async def try_again(bill: bytes) -> None:
        called.append(bill)
        if len(called) == 2:
            raise ConnectionError("once")

    async with latermq_time.working(app), latermq_time.connect() as mq:
        await mq.send("orders", b"17")
        await latermq_time.settle()
        await mq.send("bills", b"18")
        await latermq_time.settle()
    assert called == [b"17", b"18", b"18"]
    (letter,) = latermq_time.dead("billing")
    assert (letter.body, letter.kind) == (b"17", "RuntimeError")
    assert letter.text.startswith("Twice.handle calls call_next again")


async def test_a_transaction_whose_half_message_is_not_sent_is_none(
    latermq_time: HeldBroker,
) -> None:
    class Dry(Middleware):
        async def send(
            self, topic: str, messages: Sequence[Message], call_next: SendNext
        ) -> Sequence[SendReceipt]:
            return [SendReceipt(topic=topic, message_id="none", queue_offset=-1)]

    async with latermq_time.connect() as mq:
        mq.use(Dry())
        assert (await mq.send("orders", b"1")).message_id == "none"
        with pytest.raises(ValueError, match="did not send the transaction's half message"):
            async with mq.transaction("orders", b"2"):
                raise AssertionError("there is none")
    assert latermq_time.sent("orders") == []


@pytest.mark.parametrize("batch", [1, 2])
async def test_what_belongs_to_a_thread_is_set_and_removed_there(
    latermq_time: HeldBroker, batch: int
) -> None:
    app, seen = latermq.App(), Seen()
    local = threading.local()

    class Session(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        def in_thread(self, call_next: Callable[[], object]) -> object:
            seen.append(f"{self.name} begins")
            local.session = f"{getattr(local, 'session', '')}{self.name}"
            try:
                return call_next()
            except ValueError as error:
                seen.append(f"{self.name} saw {error}")
                raise
            finally:
                del local.session

    for name in "ab":
        app.use(Session(name))

    def bill(order: str) -> None:
        seen.append(f"{order} in {local.session}")
        assert threading.current_thread() is not threading.main_thread()
        raise ValueError("no")

    def bill_all(orders: list[str]) -> None:
        bill(" ".join(orders))

    if batch == 1:
        app.listener("orders", group="billing", max_attempts=1)(bill)
    else:
        app.listener("orders", group="billing", max_attempts=1, batch=batch)(bill_all)

    async with latermq_time.working(app):
        await app.client.send_batch("orders", [Message(b"17")] * batch)
        while len(latermq_time.dead("billing")) < batch:
            await latermq_time.settle()
    body = " ".join(["17"] * batch)
    assert seen == ["a begins", "b begins", f"{body} in ab", "b saw no", "a saw no"]
