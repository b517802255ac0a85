"""A table of what was done, written in the transaction that does it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, DateTime, Insert, MetaData, String, Table, delete, insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from latermq._values import arguments
from latermq.idempotency._keys import NAME_CHARACTERS_MAX, check_key

TABLE: Final = "latermq_done"


class Done:
    """What one consumer group has done, in a table that groups may share.

    Args:
        metadata: the table is added to it, for `create_all` or Alembic.
        group: whose work it is: another group does its own work with the same message.
    """

    def __init__(self, metadata: MetaData, group: str, *, table: str = TABLE) -> None:
        arguments.name_of("group", group)
        self.group = group
        known = metadata.tables.get(table)
        self.table = _table(metadata, table) if known is None else known

    def first_time(self, session: Session | Connection, key: str) -> bool:
        """Remember, in the session's transaction, that `key` is done; tell whether it was not.

        Whoever asks for the same key meanwhile, in a transaction of their own, waits for this one's
        end: then it is the first time for them where this one was rolled back.

        Args:
            key: the message's id; or what the work is about, such as the order's number, which is
                the same however often it was sent.
        Raises:
            NotImplementedError: neither PostgreSQL, SQLite, MySQL nor MariaDB.
        """
        check_key(key)
        bind = session.get_bind() if isinstance(session, Session) else session
        statement = _insert_if_missing(bind.dialect.name)(self.table)
        values = {"group_name": self.group, "key": key, "done_at": datetime.now(UTC)}
        made: Any = session.execute(statement.values(**values))
        count: int = made.rowcount
        return count == 1

    async def first_time_async(self, session: AsyncSession | AsyncConnection, key: str) -> bool:
        """Do as `first_time`, for SQLAlchemy's asyncio."""
        return await session.run_sync(self.first_time, key)

    def forget(self, session: Session | Connection, before: datetime) -> int:
        """Forget what this group did before then; return how much that was.

        A message that comes after it is forgotten is done again: keep what is younger than the
        broker's retention, dead letters' included.
        """
        table = self.table
        old = delete(table).where(table.c.group_name == self.group, table.c.done_at < before)
        result: Any = session.execute(old)
        count: int = result.rowcount
        return count


def _table(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("group_name", String(NAME_CHARACTERS_MAX), primary_key=True),
        Column("key", String(NAME_CHARACTERS_MAX), primary_key=True),
        Column("done_at", DateTime(timezone=True), nullable=False, index=True),
    )


def _insert_if_missing(dialect: str) -> Callable[[Table], Insert]:
    match dialect:
        case "postgresql":
            return lambda table: postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return lambda table: sqlite.insert(table).on_conflict_do_nothing()
        case "mysql" | "mariadb":
            return lambda table: insert(table).prefix_with("IGNORE")
    raise NotImplementedError(f"nobody has tried {dialect} with latermq.idempotency")
