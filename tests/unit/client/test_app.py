"""What a listener's function may look like, and what a decorated one can do."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import latermq
from latermq.app import Listener
from latermq.client import Client
from latermq.errors import UnavailableError
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually


@dataclass
class Order:
    id: int


@pytest.fixture
def app() -> latermq.App:
    return latermq.App()


def test_a_listener_is_still_its_function(app: latermq.App) -> None:
    @app.listener("orders", group="billing", tags="paid")
    def bill(order: Order) -> int:
        """Bills."""
        return order.id + 1

    assert isinstance(bill, Listener)
    assert bill(Order(1)) == 2
    assert (bill.__name__, bill.__doc__) == ("bill", "Bills.")
    assert (bill.topic, bill.group, bill.tags) == ("orders", "billing", "paid")
    assert app.listeners == (bill,)


def test_the_message_says_what_its_body_is(app: latermq.App) -> None:
    @app.listener("orders", group="billing")
    async def bill(order: Order, delivery: latermq.Delivery) -> None: ...

    made = bill.message(Order(7), keys=["7"], properties={"a": "b"}, delay=timedelta(seconds=1))
    assert made.body == b'{"id":7}'
    assert made.properties == {"a": "b", "content-type": "application/json"}
    assert (made.keys, made.delay) == (["7"], timedelta(seconds=1))


def test_bytes_say_nothing_of_themselves(app: latermq.App) -> None:
    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None: ...

    assert bill.message(b"x").properties == {}


def test_a_listener_of_deliveries_sends_no_payload(app: latermq.App) -> None:
    @app.listener("orders", group="billing")
    async def bill(delivery: latermq.Delivery) -> None: ...

    with pytest.raises(TypeError, match="takes deliveries"):
        bill.message(b"x")  # type: ignore[arg-type]


async def _none() -> None: ...
async def _bare(order) -> None: ...  # type: ignore[no-untyped-def]
async def _three(one: bytes, two: bytes, three: bytes) -> None: ...
async def _turned(delivery: latermq.Delivery, order: bytes) -> None: ...
async def _named(*, order: bytes) -> None: ...
def _blocking(order: bytes, delivery: latermq.Delivery) -> None: ...


def _yields(order: bytes) -> Iterator[bytes]:
    yield order


async def _yields_later(order: bytes) -> AsyncIterator[bytes]:
    yield order


@pytest.mark.parametrize(
    "function",
    [_none, _bare, _three, _turned, _named, _blocking, _yields, _yields_later, 7],
)
def test_other_functions_are_refused(app: latermq.App, function: Any) -> None:
    with pytest.raises(TypeError):
        app.listener("orders", group="billing")(function)
    assert app.listeners == ()


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"group": ""}, "group must not be empty"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"timeout": timedelta(0)}, "timeout must be positive"),
    ],
)
def test_bad_settings_are_refused_where_they_are_written(
    app: latermq.App, about: dict[str, Any], message: str
) -> None:
    async def bill(order: bytes) -> None: ...

    with pytest.raises(ValueError, match=message):
        app.listener("orders", **{"group": "billing", **about})(bill)


def test_a_group_has_one_listener_of_a_topic(app: latermq.App) -> None:
    """What one does not want, by its tags, the other would not get either."""

    async def bill(order: bytes) -> None: ...

    app.listener("orders", group="billing", tags="paid")(bill)
    with pytest.raises(ValueError, match="group billing has a listener of topic orders, bill: "):
        app.listener("orders", group="billing", tags="cancelled")(bill)
    app.listener("orders", group="shipping")(bill)
    app.listener("bills", group="billing")(bill)
    for _ in range(2):
        app.listener("prices", group="cache", broadcast=True)(bill)
    assert len(app.listeners) == 5


@pytest.mark.parametrize("first", [True, False])
def test_a_broadcast_takes_nothing_from_its_group(app: latermq.App, first: bool) -> None:
    async def bill(order: bytes) -> None: ...

    for broadcast in (first, not first):
        app.listener("orders", group="billing", broadcast=broadcast)(bill)
    assert len(app.listeners) == 2


def test_a_thread_has_no_time_limit(app: latermq.App) -> None:
    def bill(order: bytes) -> None: ...

    with pytest.raises(ValueError, match="a thread cannot be stopped"):
        app.listener("orders", group="billing", timeout=timedelta(seconds=1))(bill)


async def test_an_app_without_listeners_does_not_serve(app: latermq.App) -> None:
    with pytest.raises(ValueError, match="no listeners"):
        await app.serve(asyncio.Event())


@virtually
async def test_what_the_broker_never_heard_is_not_finished(
    app: latermq.App,
    broker: ScriptedBroker,
    connect: Callable[[], Client],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is done again: a worker that ended in an outage said that all was finished."""
    done: list[bytes] = []

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None:
        done.append(order)

    broker.deliver(b"17")
    broker.refuse("AckMessage", *[UnavailableError("gone")] * 1_000)
    end = asyncio.Event()
    with app._connecting(connect):
        serving = asyncio.create_task(app.serve(end, grace=timedelta(seconds=5)))
        await asyncio.sleep(1)
        end.set()
        assert not await serving
    assert done == [b"17"]
    assert broker.returned() == ["id-1"]
    assert "ended; not finished within the grace, given back: 1" in caplog.text


def test_an_app_in_use_stays_where_it_is(app: latermq.App) -> None:
    app.move_to("127.0.0.1:9999")
    assert app.client is app.client
    with pytest.raises(ValueError, match="in use"):
        app.move_to("127.0.0.1:8081")
