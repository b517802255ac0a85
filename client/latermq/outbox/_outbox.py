"""An outbox and its relay: for SQLAlchemy's engines, and for its asyncio.

add ──commit──→ waiting ──the broker has it──→ gone
                   ├──refused twice, for good──→ parked ──unpark──→ waiting
                   └──the broker is away──→ waiting
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from sqlalchemy import MetaData, delete, insert, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from latermq._values import arguments
from latermq.client import Client
from latermq.errors import (
    ClosedError,
    DiskFullError,
    ForbiddenError,
    LaterMQError,
    LiteQuotaError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)
from latermq.message import Message
from latermq.outbox._table import (
    Parked,
    Row,
    Turn,
    lease_table,
    order_of,
    outbox_table,
    parked_rows,
    values_of,
)
from latermq.producer import time_of_day

if TYPE_CHECKING:  # SQLAlchemy's asyncio needs greenlet, which is an extra of SQLAlchemy
    from sqlalchemy.ext.asyncio import (
        AsyncConnection,
        AsyncEngine,
        AsyncSession,
        async_scoped_session,
    )

    from latermq import sync

    AnyAsyncSession: TypeAlias = AsyncSession | async_scoped_session[Any] | AsyncConnection

log = logging.getLogger("latermq.client")

AnySession: TypeAlias = Session | scoped_session[Any] | Connection

TABLE: Final = "latermq_outbox"
WINDOW: Final = 100  # rows of one transaction
LEASE: Final = timedelta(seconds=30)
LEASE_MIN: Final = timedelta(seconds=1)
PAUSE: Final = timedelta(seconds=1)
PAUSE_MAX: Final = timedelta(seconds=30)  # while the broker or the database is away
PARKED_LIMIT: Final = 1_000
ALL: Final = ""  # no topic has this name
DATABASE: Final = "the database"  # nor this one
# The broker is away or has no room: all messages wait.
OUTAGES: Final = (
    UnavailableError, RequestTimeoutError, ServerError, DiskFullError, TooManyRequestsError,
    UnauthorizedError,
)  # fmt: skip
# Somebody has to change something at the broker: the topic's messages wait.
CLOSED_TOPIC: Final = (ForbiddenError, LiteQuotaError)


class Relayed(NamedTuple):
    """The outcome of a round.

    Fields:
        sent: messages that the broker has now.
        parked: messages that were set aside.
        waiting: why others still wait: topic → reason; "" as topic: all of them. {}: none does.
        elsewhere: another relay has the turn: this one sent nothing.
    """

    sent: int = 0
    parked: int = 0
    waiting: dict[str, str] = {}  # noqa: RUF012  never changed
    elsewhere: bool = False


class Outbox:
    """Messages in a table of your database, sent once the transaction that stored them commits.

    Args:
        metadata: two tables are added to it, for `create_all` or Alembic; their schema is its own.
        table: the name of the messages' table; the relay's lease is in `…_relay`.
        lease: so long after a relay has died another one takes its turn; at least a second.
    """

    def __init__(self, metadata: MetaData, *, table: str = TABLE, lease: timedelta = LEASE) -> None:
        arguments.name_of("table", table)
        arguments.duration("lease", lease)
        if lease < LEASE_MIN:
            raise ValueError(f"lease must be at least {LEASE_MIN}, not {lease}")
        self.lease = lease
        self.table = outbox_table(metadata, table)
        self.lease_table = lease_table(metadata, f"{table}_relay")

    def add(self, session: AnySession, topic: str, message: Message) -> None:
        """Store a message in the session's transaction.

        Args:
            message: with all its fields; a `delay` counts from now.
        """
        session.execute(self._insert(topic, message))

    async def add_async(self, session: "AnyAsyncSession", topic: str, message: Message) -> None:
        """Do as `add`, for SQLAlchemy's asyncio."""
        await session.execute(self._insert(topic, message))

    def _insert(self, topic: str, message: Message) -> Any:
        arguments.name_of("topic", topic)
        if not isinstance(message, Message):
            raise arguments.wrong("message", "a Message", message)
        return insert(self.table).values(**values_of(topic, message, time_of_day()))

    def relay(self, mq: "sync.Client", engine: Engine) -> Relayed:
        """Send what waits, the oldest first, until nothing waits that can be sent.

        Messages of one message group go in the order in which they were added, and so do all of
        them here; `relay_async` sends those without a group side by side. Rows of sent messages are
        taken away 100 at a time: a relay that dies in between leaves some to be sent again, with
        the dedup ids that they had.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: of the database.
            ClosedError: the client was closed.
        """
        round_ = _Round(self)
        try:
            while (rows := _do(engine, round_.take)) is not None:
                for row in rows:
                    while round_.is_next(row):
                        with round_.trying(row):
                            mq.send_batch(row.topic, [row.message()])
                            round_.sent.append(row.id)
                _do(engine, round_.settle)
                round_.settled()
                if round_.over(rows):
                    break
        finally:
            _do(engine, round_.end)
        return round_.relayed()

    async def relay_async(self, mq: Client, engine: "AsyncEngine") -> Relayed:
        """Do as `relay`, with asyncio on both sides."""
        round_ = _Round(self)

        async def send(lane: Sequence[Row]) -> None:
            for row in lane:
                while round_.is_next(row):
                    with round_.trying(row):
                        await mq.send_batch(row.topic, [row.message()])
                        round_.sent.append(row.id)

        try:
            while (rows := await _do_async(engine, round_.take)) is not None:
                await _side_by_side(send(lane) for lane in _lanes(rows))
                await _do_async(engine, round_.settle)
                round_.settled()
                if round_.over(rows):
                    break
        finally:
            await asyncio.shield(_do_async(engine, round_.end))
        return round_.relayed()

    def run(
        self,
        mq: "sync.Client",
        engine: Engine,
        *,
        pause: timedelta = PAUSE,
        stop: threading.Event | None = None,
    ) -> None:
        """Relay until `stop` is set: what waits, and every `pause` what came since.

        Outages of the broker and of the database are waited for, at most 30 s at a time, with one
        warning at the begin and one line at the end.
        """
        watch, stop = _Watch(pause), stop or threading.Event()
        while not stop.is_set():
            with watch.looking():
                watch.ended(self.relay(mq, engine))
            stop.wait(watch.pause.total_seconds())

    async def run_async(
        self, mq: Client, engine: "AsyncEngine", *, pause: timedelta = PAUSE
    ) -> None:
        """Do as `run`, with asyncio on both sides, until it is cancelled."""
        watch = _Watch(pause)
        while True:
            with watch.looking():
                watch.ended(await self.relay_async(mq, engine))
            await asyncio.sleep(watch.pause.total_seconds())

    def parked(self, session: AnySession, *, limit: int = PARKED_LIMIT) -> list[Parked]:
        """Return messages that were set aside, the oldest first.

        With asyncio: `await session.run_sync(outbox.parked)`.
        """
        arguments.at_least_one("limit", limit)
        return parked_rows(self._connection(session), self.table, limit)

    def unpark(self, session: AnySession, *ids: int) -> int:
        """Have messages that were set aside sent after all, all of them if none is named.

        Return how many.
        """
        changed = update(self.table).where(self.table.c.parked_at.is_not(None))
        return self._count(session, changed.values(parked_at=None, reason=None), ids)

    def drop(self, session: AnySession, *ids: int) -> int:
        """Delete messages that were set aside; return how many.

        Raises:
            ValueError: none is named.
        """
        if not ids:
            raise ValueError("name the messages to drop, by id")
        return self._count(
            session, delete(self.table).where(self.table.c.parked_at.is_not(None)), ids
        )

    def ddl(self, engine: "Engine | AsyncEngine") -> list[str]:
        """Return the SQL that makes the tables on this engine's database, for a migration."""
        tables = [CreateTable(each) for each in (self.table, self.lease_table)]
        statements: list[DDLElement] = [*tables, *map(CreateIndex, self.table.indexes)]
        return [str(each.compile(dialect=engine.dialect)).strip() for each in statements]

    def _count(self, session: AnySession, statement: Any, ids: Sequence[int]) -> int:
        if ids:
            statement = statement.where(self.table.c.id.in_(ids))
        done: Any = self._connection(session).execute(
            statement, execution_options={"preserve_rowcount": True}
        )
        count: int = done.rowcount
        return count

    def _connection(self, session: AnySession) -> Connection:
        if isinstance(session, Connection):
            return session
        connection: Connection = session.connection(bind_arguments={"clause": self.table.insert()})
        return connection


def _do(engine: Engine, work: Callable[[Connection], Any]) -> Any:
    with engine.begin() as connection:
        return work(connection)


async def _do_async(engine: "AsyncEngine", work: Callable[[Connection], Any]) -> Any:
    async with engine.begin() as connection:
        return await connection.run_sync(work)


def _lanes(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows by what keeps its order: each list one after the other."""
    lanes: dict[tuple[str, str | int], list[Row]] = {}
    for row in rows:
        lanes.setdefault(order_of(row), []).append(row)
    return list(lanes.values())


async def _side_by_side(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all of it; the first that raises ends the others, and is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


def _now_ms() -> int:
    return int(time_of_day().timestamp() * 1000)


class _Round:
    """One round of a relay: which rows were sent, which were refused, and who has to wait."""

    def __init__(self, outbox: Outbox) -> None:
        self._lease = outbox.lease
        lease_ms = outbox.lease // timedelta(milliseconds=1)
        self._turn = Turn(outbox.table, outbox.lease_table, lease_ms, _now_ms)
        self._sent_before = 0
        self._parked_before = 0
        self._elsewhere = False
        self._closed: dict[str, str] = {}  # topic → reason; ALL: of every topic
        self._stop_at = 0.0
        self._moved = False
        self.sent: list[int] = []
        self._refused: set[int] = set()  # once
        self._parked: dict[int, str] = {}
        self._waiting: dict[int, str] = {}

    def take(self, connection: Connection) -> list[Row] | None:
        """Return the next rows; None: another relay has the turn."""
        self._stop_at = monotonic() + self._lease.total_seconds() / 2
        rows = self._turn.take(connection, WINDOW, self._closed)
        self._elsewhere = rows is None
        return rows

    def is_next(self, row: Row) -> bool:
        """Tell whether the row is to be tried: it has no outcome, and nothing keeps it waiting."""
        if row.id in self._parked or row.id in self.sent:
            return False
        closed = ALL in self._closed or row.topic in self._closed
        return not closed and monotonic() < self._stop_at

    @contextmanager
    def trying(self, row: Row) -> Iterator[None]:
        """Enclose one try: an outage has all wait, and the second refusal sets the row aside."""
        try:
            yield
        except ClosedError:
            raise
        except OUTAGES as error:
            self._wait(ALL, row, error)
        except CLOSED_TOPIC as error:
            self._wait(row.topic, row, error)
        except LaterMQError as error:
            if error.stored is not False:
                self._wait(ALL, row, error)
            elif row.id in self._refused:
                self._park(row, str(error))
            self._refused.add(row.id)
        except Exception as error:  # noqa: BLE001  a row must not stop those behind it
            self._park(row, f"{type(error).__name__}: {error}")

    def settle(self, connection: Connection) -> None:
        """Write the outcomes since the last time."""
        self._turn.settle(connection, self.sent, self._parked, self._waiting)

    def settled(self) -> None:
        """Count them: their transaction was committed."""
        self._moved = bool(self.sent or self._parked or self._waiting)
        self._sent_before += len(self.sent)
        self._parked_before += len(self._parked)
        self.sent, self._parked, self._waiting = [], {}, {}

    def over(self, rows: Sequence[Row]) -> bool:
        """Tell whether nothing waits that can be sent now."""
        return not rows or ALL in self._closed or not self._moved

    def end(self, connection: Connection) -> None:
        """Write what an exception has left unwritten, and give the turn to others."""
        self.settle(connection)
        self._turn.leave(connection)

    def relayed(self) -> Relayed:
        """Return the outcome."""
        return Relayed(self._sent_before, self._parked_before, self._closed, self._elsewhere)

    def _wait(self, topic: str, row: Row, error: Exception) -> None:
        self._closed[topic] = self._waiting[row.id] = str(error)

    def _park(self, row: Row, reason: str) -> None:
        self._parked[row.id] = reason
        log.warning(
            "message %d of the outbox, for %s, is set aside: %s", row.id, row.topic, reason,
            extra={"topic": row.topic, "row": row.id, "reason": reason},
        )  # fmt: skip


class _Watch:
    """Tells of outages once, and makes pauses longer while one lasts."""

    def __init__(self, pause: timedelta) -> None:
        arguments.duration("pause", pause)
        if pause <= timedelta(0):
            raise ValueError(f"pause must be positive, not {pause}")
        self._usual = self.pause = pause
        self._out: set[str] = set()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Enclose a round: a database that fails is an outage, too."""
        try:
            yield
        except SQLAlchemyError as error:
            self._tell({DATABASE: str(error)})

    def ended(self, relayed: Relayed) -> None:
        """Take a round's outcome."""
        self._tell(relayed.waiting)

    def _tell(self, waiting: Mapping[str, str]) -> None:
        for topic in waiting.keys() - self._out:
            of = f"messages for {topic}" if topic else "all messages"
            log.warning(
                "the outbox keeps %s for later: %s", of, waiting[topic],
                extra={"topic": topic, "reason": waiting[topic]},
            )  # fmt: skip
        if self._out and not waiting:
            log.info("the outbox sends again")
        self._out = set(waiting)
        everything = ALL in waiting or DATABASE in waiting
        self.pause = min(2 * self.pause, max(PAUSE_MAX, self._usual)) if everything else self._usual
