"""What waits in an outbox is sent once, in order, or set aside; whatever the broker answers."""

import asyncio
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, MetaData, create_engine, func, select, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from latermq import Message
from latermq.errors import (
    ClosedError,
    ForbiddenError,
    MessageTooLargeError,
    UnavailableError,
)
from latermq.outbox import Outbox, Relayed
from latermq.outbox._table import message_of, values_of

METADATA = MetaData()
OUTBOX = Outbox(METADATA)
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


class Broker:
    """Takes messages, or raises what `answer` says of a body."""

    def __init__(self, answer: Callable[[bytes], Exception | None] = lambda _: None) -> None:
        self.answer = answer
        self.tried: list[bytes] = []
        self.stored: dict[str, Message] = {}  # by dedup id

    def take(self, topic: str, messages: Sequence[Message]) -> None:
        (message,) = messages
        self.tried.append(message.body)
        error = self.answer(message.body)
        if error is not None:
            raise error
        assert message.dedup_id is not None
        self.stored.setdefault(message.dedup_id, message)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.stored.values()]


class Client(Broker):
    """The same, for asyncio."""

    async def send_batch(self, topic: str, messages: Sequence[Message]) -> None:
        await asyncio.sleep(0)
        self.take(topic, messages)


class ThreadClient(Broker):
    def send_batch(self, topic: str, messages: Sequence[Message]) -> None:
        self.take(topic, messages)


class Relay:
    """A relay of one of the two kinds."""

    def __init__(self, path: Path, *, waits: bool) -> None:
        self.waits = waits
        self.engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
        self.async_engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
        METADATA.create_all(self.engine)

    def broker(self, answer: Callable[[bytes], Exception | None] = lambda _: None) -> Broker:
        return Client(answer) if self.waits else ThreadClient(answer)

    async def __call__(self, broker: Any) -> Relayed:
        if self.waits:
            return await OUTBOX.relay_async(broker, self.async_engine)
        return OUTBOX.relay(broker, self.engine)

    def add(self, *bodies: bytes, topic: str = "orders", **fields: Any) -> None:
        with Session(self.engine) as session, session.begin():
            for body in bodies:
                OUTBOX.add(session, topic, Message(body, **fields))

    def left(self) -> int:
        with self.engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(OUTBOX.table)) or 0


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def relay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relay]:
    made = Relay(tmp_path / "db", waits=request.param)
    yield made
    made.engine.dispose()


def refuses(*bodies: bytes, error: Exception) -> Callable[[bytes], Exception | None]:
    return lambda body: error if body in bodies else None


async def test_what_is_committed_is_sent_and_taken_away(relay: Relay) -> None:
    with Session(relay.engine) as session:
        OUTBOX.add(session, "orders", Message(b"rolled back"))
    relay.add(b"1", b"2", b"3", message_group="a")
    broker = relay.broker()
    assert await relay(broker) == Relayed(sent=3)
    assert (broker.bodies, relay.left()) == ([b"1", b"2", b"3"], 0)
    assert await relay(broker) == Relayed()


async def test_a_row_that_is_refused_for_good_is_set_aside(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    relay.add(*(b"%d" % number for number in range(250)), message_group="a")
    relay.add(b"no message", topic="others")
    with relay.engine.begin() as connection:
        others = OUTBOX.table.c.topic == "others"
        connection.execute(update(OUTBOX.table).where(others).values(fields='{"priority": -1}'))
    bad = [b"0", b"17", b"249"]
    broker = relay.broker(refuses(*bad, error=MessageTooLargeError(41301, "tüü large")))
    assert await relay(broker) == Relayed(sent=247, parked=4)
    assert broker.bodies == [b"%d" % n for n in range(250) if b"%d" % n not in bad]
    assert max(Counter(broker.tried).values()) == 2, "refused, and refused again"
    assert caplog.text.count("is set aside: t") == 3
    assert await relay(broker) == Relayed()

    with Session(relay.engine) as session, session.begin():
        parked = OUTBOX.parked(session)
        assert [each.body for each in parked] == [*bad, b"no message"]
        assert "large" in parked[0].reason
        assert "priority must be 0 to" in parked[-1].reason
        assert OUTBOX.drop(session, parked[-1].id, parked[0].id) == 2
        with pytest.raises(ValueError, match="name the messages"):
            OUTBOX.drop(session)
        assert OUTBOX.unpark(session, parked[1].id) == 1
        assert OUTBOX.unpark(session) == 1
    broker.answer = lambda _: None
    assert await relay(broker) == Relayed(sent=2)
    assert relay.left() == 0


async def test_an_outage_has_all_wait_and_doubles_nothing(relay: Relay) -> None:
    relay.add(*(b"%d" % number for number in range(120)), message_group="a")
    away = UnavailableError("no route")

    broker = relay.broker()
    answers = iter([None] * 110)

    def breaks(body: bytes) -> Exception | None:
        return next(answers, away)

    broker.answer = breaks
    relayed = await relay(broker)
    assert (relayed.sent, relayed.parked, relayed.waiting) == (110, 0, {"": "no route"})
    assert (await relay(broker)).waiting == {"": "no route"}
    assert relay.left() == 10
    broker.answer = lambda _: None
    assert await relay(broker) == Relayed(sent=10)
    assert broker.bodies == [b"%d" % number for number in range(120)]


async def test_an_answer_that_is_lost_is_asked_for_with_the_same_id(relay: Relay) -> None:
    relay.add(b"1", b"2", message_group="a")
    broker = relay.broker()
    take, lost = broker.take, [True]

    def loses(topic: str, messages: Sequence[Message]) -> None:
        take(topic, messages)
        if lost:
            lost.clear()
            raise UnavailableError("the connection broke")

    broker.take = loses  # type: ignore[method-assign]
    assert (await relay(broker)).sent == 0
    assert (await relay(broker)).sent == 2
    assert broker.bodies == [b"1", b"2"]


async def test_a_topic_that_is_closed_to_us_keeps_nobody_else(relay: Relay) -> None:
    relay.add(*(b"closed-%d" % number for number in range(150)), topic="closed")
    relay.add(b"open")
    forbidden = ForbiddenError(40300, "no right")
    broker = relay.broker(lambda body: forbidden if body.startswith(b"closed") else None)
    relayed = await relay(broker)
    assert (relayed.sent, relayed.parked, relayed.waiting) == (
        1,
        0,
        {"closed": "no right [FORBIDDEN 40300]"},
    )
    assert relay.left() == 150
    broker.answer = lambda _: None
    assert (await relay(broker)).sent == 150


async def test_who_dies_in_between_has_written_what_was_sent(relay: Relay) -> None:
    relay.add(b"1", b"2", b"3", message_group="a")
    broker = relay.broker(refuses(b"3", error=ClosedError("closed")))
    with pytest.raises(ClosedError):
        await relay(broker)
    assert relay.left() == 1
    broker.answer = lambda _: None
    assert (await relay(broker)).sent == 1  # and the turn was given up


async def test_one_relay_has_the_turn(tmp_path: Path) -> None:
    relay = Relay(tmp_path / "db", waits=True)
    relay.add(b"1", b"2", message_group="a")
    inside, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Client):
        async def send_batch(self, topic: str, messages: Sequence[Message]) -> None:
            inside.set()
            await go_on.wait()
            await super().send_batch(topic, messages)

    slow, other = Slow(), Client()
    first = asyncio.create_task(relay(slow))
    await inside.wait()
    assert await relay(other) == Relayed(elsewhere=True)
    go_on.set()
    assert await first == Relayed(sent=2)
    assert other.tried == []
    relay.engine.dispose()


async def test_a_running_relay_waits_for_outages_and_tells_of_them_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "latermq.client")
    relay = Relay(tmp_path / "db", waits=True)
    away: list[bool] = [True]
    broker = Client(lambda _: UnavailableError("no route") if away else None)
    relay.add(b"1")
    running = asyncio.create_task(
        OUTBOX.run_async(broker, relay.async_engine, pause=timedelta(milliseconds=1))  # type: ignore[arg-type]
    )
    while len(broker.tried) < 3:
        await asyncio.sleep(0.001)
    away.clear()
    while relay.left():
        await asyncio.sleep(0.001)
    while "the outbox sends again" not in caplog.text:
        await asyncio.sleep(0.001)
    METADATA.drop_all(relay.engine)
    while "no such table" not in caplog.text:
        await asyncio.sleep(0.001)
    METADATA.create_all(relay.engine)
    relay.add(b"2")
    while relay.left():
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert caplog.text.count("keeps all messages for later: no route") == 1
    assert broker.bodies == [b"1", b"2"]
    relay.engine.dispose()


@given(
    body=st.binary(min_size=1),
    tag=st.none() | WORDS,
    keys=st.lists(WORDS, min_size=1, max_size=2),
    properties=st.dictionaries(WORDS, WORDS, max_size=2),
    message_group=st.none() | WORDS,
    priority=st.none() | st.integers(0, 9),
    lite_topic=st.none() | WORDS,
    when=st.none() | st.timedeltas(timedelta(0), timedelta(days=400)),
    at_a_time=st.booleans(),
    dedup_id=st.none() | WORDS,
)
def test_all_fields_of_a_message_come_back(
    when: timedelta | None, at_a_time: bool, **fields: Any
) -> None:
    if fields["priority"] is not None:
        fields["message_group"] = None
    due = None if when is None else NOW + when
    time = {"deliver_at": due} if at_a_time else {"delay": when}
    row = values_of("orders", Message(**fields, **time), NOW)
    assert row["fields"].isascii(), "whatever the database's character set"
    back = message_of(row["body"], row["fields"], "0" * 32)
    wanted = {**fields, "dedup_id": fields["dedup_id"] or "0" * 32}
    assert back == Message(**wanted, deliver_at=due)


def test_a_dedup_id_as_a_property_is_kept() -> None:
    message = Message(b"x", properties={"LATERMQ_DEDUP_ID": "invoice-17"})
    row = values_of("orders", message, NOW)
    assert message_of(row["body"], row["fields"], "0" * 32) == message


def test_what_cannot_be_sent_is_not_added(tmp_path: Path) -> None:
    with create_engine("sqlite://").connect() as connection:
        with pytest.raises(TypeError, match="message must be a Message"):
            OUTBOX.add(connection, "orders", b"bytes")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="topic must not be empty"):
            OUTBOX.add(connection, "", Message(b"x"))
    with pytest.raises(ValueError, match="pause must be positive"):
        OUTBOX.run(None, None, pause=timedelta(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lease must be at least"):
        Outbox(MetaData(), lease=timedelta(0))


def test_its_sql_makes_its_tables(tmp_path: Path) -> None:
    engine: Engine = create_engine(f"sqlite:///{tmp_path}/db", poolclass=NullPool)
    with engine.begin() as connection:
        for statement in OUTBOX.ddl(engine):
            connection.exec_driver_sql(statement)
        OUTBOX.add(connection, "orders", Message(b"x"))
    assert OUTBOX.relay(ThreadClient(), engine) == Relayed(sent=1)  # type: ignore[arg-type]
    engine.dispose()


WITHOUT_GREENLET: Final = """
import sys
sys.modules["greenlet"] = sys.modules["greenlet._greenlet"] = None
from sqlalchemy import MetaData, create_engine
from latermq import Message
from latermq.idempotency import Done
from latermq.outbox import Outbox
metadata = MetaData()
outbox, done = Outbox(metadata), Done(metadata, "billing")
engine = create_engine("sqlite://")
metadata.create_all(engine)
with engine.begin() as connection:
    outbox.add(connection, "orders", Message(b"17"))
    print(done.first_time(connection, "17"), outbox.parked(connection), len(outbox.ddl(engine)))
"""


def test_threads_need_nothing_of_asyncio() -> None:
    """SQLAlchemy's asyncio is an extra of it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GREENLET], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("True [] 3", "")
