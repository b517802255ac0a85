"""A table of what was done, written in the transaction that does it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from sqlalchemy import Column, DateTime, Insert, MetaData, Table, delete, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, scoped_session

from latermq._values import arguments
from latermq.idempotency._exact import check_table, name_type, value
from latermq.idempotency._keys import check_key

TABLE: Final = "latermq_done"

AnySession: TypeAlias = Session | scoped_session[Any] | Connection

if TYPE_CHECKING:  # SQLAlchemy's asyncio needs greenlet, which is an extra of SQLAlchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    AnyAsyncSession: TypeAlias = AsyncSession | async_scoped_session[Any] | AsyncConnection


class Done:
    """What one consumer group has done, in a table that groups may share.

    Two keys are the same work when their bytes are equal, whatever the database's collation.

    Args:
        metadata: the table is added to it, for `create_all` or Alembic; its schema is the table's.
        group: whose work it is: another group does its own work with the same message.
    """

    def __init__(self, metadata: MetaData, group: str, *, table: str = TABLE) -> None:
        arguments.name_of("group", group)
        check_key(group)
        self.group = group
        full = f"{metadata.schema}.{table}" if metadata.schema else table
        known = metadata.tables.get(full)
        self.table = _table(metadata, table) if known is None else known
        self._checked: WeakSet[Engine] = WeakSet()

    def first_time(self, session: AnySession, key: str) -> bool:
        """Remember, in the session's transaction, that `key` is done; tell whether it was not.

        Whoever asks for the same key meanwhile, in a transaction of their own, waits for this one's
        end: then it is the first time for them where this one was rolled back.

        Args:
            session: any that executes an insert into `table`: where it sends that, this goes too.
            key: the message's id; or what the work is about, such as the order's number, which is
                the same however often it was sent.
        Raises:
            InexactTableError: the table that is there takes different keys for one.
            sqlalchemy.exc.OperationalError: a deadlock, on MySQL and MariaDB, where two wait for a
                third that is rolled back: one of them is, too, and its message comes again.
            NotImplementedError: neither PostgreSQL, SQLite, MySQL nor MariaDB.
        """
        check_key(key)
        return self._insert(self._connection(session), key)

    async def first_time_async(self, session: "AnyAsyncSession", key: str) -> bool:
        """Do as `first_time`, for SQLAlchemy's asyncio."""
        check_key(key)
        connection = await self._async_connection(session)
        return await connection.run_sync(self._insert, key)

    def check(self, session: AnySession) -> None:
        """Look, when a program starts, whether the table that is there compares keys exactly.

        `first_time` looks by itself, once for each engine.

        Raises:
            InexactTableError: it does not; the error says how it is altered.
            NotImplementedError: neither PostgreSQL, SQLite, MySQL nor MariaDB.
        """
        self._check(self._connection(session))

    async def check_async(self, session: "AnyAsyncSession") -> None:
        """Do as `check`, for SQLAlchemy's asyncio."""
        await (await self._async_connection(session)).run_sync(self._check)

    def forget(self, session: AnySession, before: datetime) -> int:
        """Forget what this group did before then; return how much that was.

        A message that comes after it is forgotten is done again: keep what is younger than the
        broker's retention, dead letters' included.
        """
        table = self.table
        connection = self._connection(session)
        group = value(connection.dialect.name, self.group)
        old = delete(table).where(table.c.group_name == group, table.c.done_at < before)
        result: Any = connection.execute(old)
        count: int = result.rowcount
        return count

    def _connection(self, session: AnySession) -> Connection:
        if isinstance(session, Connection):
            return session
        connection: Connection = session.connection(bind_arguments={"clause": self.table.insert()})
        return connection

    async def _async_connection(self, session: "AnyAsyncSession") -> "AsyncConnection":
        from sqlalchemy.ext.asyncio import AsyncConnection

        if isinstance(session, AsyncConnection):
            return session
        connection: AsyncConnection = await session.connection(
            bind_arguments={"clause": self.table.insert()}
        )
        return connection

    def _check(self, connection: Connection) -> None:
        _insert_if_missing(connection.dialect.name)  # or it is a database that nobody tried
        check_table(connection, self.table)
        self._checked.add(connection.engine)

    def _insert(self, connection: Connection, key: str) -> bool:
        if connection.engine not in self._checked:
            self._check(connection)
        dialect = connection.dialect.name
        names = {"group_name": value(dialect, self.group), "key": value(dialect, key)}
        statement = _insert_if_missing(dialect)(self.table)
        made: Any = connection.execute(
            statement.values(**names, done_at=datetime.now(UTC)),
            execution_options={"preserve_rowcount": True},  # some drivers lose it with the cursor
        )
        count: int = made.rowcount
        return count == 1


def _table(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("group_name", name_type(), primary_key=True),
        Column("key", name_type(), primary_key=True),
        Column("done_at", DateTime(timezone=True), nullable=False, index=True),
    )


def _on_mysql(table: Table) -> Insert:
    """Insert, or move the time of the row that is there by a second: one row affected, or two.

    INSERT IGNORE would take a refused value for a row that is there.
    """
    moved = text("coalesce(done_at, '2000-01-01') + INTERVAL 1 SECOND")
    return mysql.insert(table).on_duplicate_key_update(done_at=moved)


_INSERTS: Final[Mapping[str, Callable[[Table], Insert]]] = {
    "postgresql": lambda table: postgresql.insert(table).on_conflict_do_nothing(),
    "sqlite": lambda table: sqlite.insert(table).on_conflict_do_nothing(),
    "mysql": _on_mysql,
    "mariadb": _on_mysql,
}


def _insert_if_missing(dialect: str) -> Callable[[Table], Insert]:
    if dialect not in _INSERTS:
        raise NotImplementedError(f"nobody has tried {dialect} with latermq.idempotency")
    return _INSERTS[dialect]
