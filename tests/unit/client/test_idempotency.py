"""What was done is remembered with what it did, or neither is."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    func,
    select,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from latermq.idempotency import Done
from latermq.idempotency._database import _insert_if_missing

METADATA = MetaData()
PAID = Table("paid", METADATA, Column("id", Integer, primary_key=True))
BILLING = Done(METADATA, "billing")
SHIPPING = Done(METADATA, "shipping")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/db", poolclass=NullPool)
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


def pay(connection: Connection, done: Done, key: str) -> bool:
    if not done.first_time(connection, key):
        return False
    connection.execute(PAID.insert())
    return True


def paid(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(PAID)) or 0


def test_it_is_done_once_and_by_each_group(engine: Engine) -> None:
    assert BILLING.table is SHIPPING.table
    for done, key, first in [
        (BILLING, "a", True), (BILLING, "a", False), (BILLING, "b", True), (SHIPPING, "a", True)
    ]:  # fmt: skip
        with engine.begin() as connection:
            assert pay(connection, done, key) is first
    assert paid(engine) == 3


def test_what_is_rolled_back_was_not_done(engine: Engine) -> None:
    with engine.connect() as connection:
        assert pay(connection, BILLING, "a")
        connection.rollback()
    assert paid(engine) == 0
    with Session(engine) as session, session.begin():
        assert BILLING.first_time(session, "a")
        assert not BILLING.first_time(session, "a")


async def test_async_sessions_do_the_same(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/db", poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)

    async def once() -> bool:
        async with engine.begin() as connection:
            return await BILLING.first_time_async(connection, "a")

    assert sorted(await asyncio.gather(*(once() for _ in range(5)))) == [False] * 4 + [True]
    await engine.dispose()


def test_what_is_old_is_forgotten(engine: Engine) -> None:
    now = datetime.now(UTC)
    with engine.begin() as connection:
        assert BILLING.first_time(connection, "a")
        assert SHIPPING.first_time(connection, "a")
        assert BILLING.forget(connection, now - timedelta(minutes=1)) == 0
        assert BILLING.forget(connection, now + timedelta(minutes=1)) == 1
        assert BILLING.first_time(connection, "a")
        assert not SHIPPING.first_time(connection, "a")


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("postgresql", "ON CONFLICT DO NOTHING"),
        ("sqlite", "ON CONFLICT DO NOTHING"),
        ("mysql", "ON DUPLICATE KEY UPDATE done_at = coalesce"),
        ("mariadb", "ON DUPLICATE KEY UPDATE done_at = coalesce"),
    ],
)
def test_each_database_has_its_words(dialect: str, words: str) -> None:
    made = _insert_if_missing(dialect)(BILLING.table)
    mysql_like = dialect in ("mysql", "mariadb")
    said = str(made.compile(dialect=mysql.dialect()) if mysql_like else made)
    assert words in said
    assert "IGNORE" not in said  # it would take a refused value for one that is there


def test_what_cannot_be_kept_is_refused(engine: Engine) -> None:
    with pytest.raises(NotImplementedError, match="oracle"):
        _insert_if_missing("oracle")
    with engine.begin() as connection:
        with pytest.raises(ValueError, match="255 characters"):
            BILLING.first_time(connection, "x" * 256)
        with pytest.raises(TypeError, match="key must be a str"):
            BILLING.first_time(connection, 17)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="UTF-8"):
            BILLING.first_time(connection, "\ud800")
    with pytest.raises(ValueError, match="group must not be empty"):
        Done(METADATA, "")
