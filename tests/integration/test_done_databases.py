"""`Done` on databases that compare text by rules of their own, and in every kind of session."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from latermq.idempotency import Done, InexactTableError
from support.sql_servers import Databases

SAME_TO_SOME: Final = (
    ("order-a", "order-A"), ("cafe", "café"), ("x", "x "), ("x", "x\t"), ("日本", "中国"),
    ("😀", "😁"), ("K", "\u212a"), ("é", "e\u0301"), ("ß", "ss"), ("1", "01"), ("a", "a\u00ad"),
)  # fmt: skip
LATER: Final = datetime(2100, 1, 1, tzinfo=UTC)
KEYS: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
)


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.fixture(params=["sqlite", "mariadb", "latin1", "postgresql"])
def engine(
    request: pytest.FixtureRequest, databases: Databases, tmp_path: Path
) -> Iterator[Engine]:
    engine = create_engine(databases.url(request.param, tmp_path), poolclass=NullPool)
    yield engine
    engine.dispose()


def first(engine: Engine, done: Done, key: str) -> bool:
    with Session(engine) as session, session.begin():
        return done.first_time(session, key)


def test_only_equal_keys_are_the_same_work(engine: Engine) -> None:
    metadata = MetaData()
    done, other = Done(metadata, "billing"), Done(metadata, "Billing")
    metadata.create_all(engine)
    for one, another in SAME_TO_SOME:
        with Session(engine) as session, session.begin():
            done.forget(session, LATER)
        assert [first(engine, done, key) for key in (one, another, one)] == [True, True, False]
    assert first(engine, other, SAME_TO_SOME[0][0])
    longest = "日" * 255
    assert [first(engine, done, longest) for _ in range(2)] == [True, False]


def test_any_keys_are_as_a_set_has_them(engine: Engine) -> None:
    metadata = MetaData()
    done = Done(metadata, "billing")
    metadata.create_all(engine)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(KEYS, max_size=12))
    def held(keys: list[str]) -> None:
        seen: set[str] = set()
        with engine.connect() as connection, connection.begin() as begun:
            for key in keys:
                assert done.first_time(connection, key) is (key not in seen)
                seen.add(key)
            begun.rollback()

    held()


def test_who_waits_for_one_that_is_rolled_back_is_first(engine: Engine) -> None:
    """Three at a time, again and again: one is first, and who is told of a deadlock asks again."""
    if engine.dialect.name == "sqlite":
        pytest.skip("one writer at a time")
    metadata = MetaData()
    done = Done(metadata, "billing")
    metadata.create_all(engine)
    first(engine, done, "another")

    def ask(key: str, begun: threading.Event) -> bool:
        while True:
            try:
                with engine.connect() as connection, connection.begin():
                    begun.set()
                    return done.first_time(connection, key)
            except OperationalError as error:
                if "Deadlock" not in str(error):
                    raise

    with ThreadPoolExecutor(3) as pool:
        for number in range(10):
            key, asked = f"order-{number}", [threading.Event() for _ in range(3)]
            with engine.connect() as connection, connection.begin() as begun:
                assert done.first_time(connection, key)
                others = [pool.submit(ask, key, event) for event in asked]
                for event in asked:
                    event.wait()
                begun.rollback()
            assert sorted(other.result() for other in others) == [False, False, True]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("mariadb", "group_name varchar(255), `key` varchar(255), done_at datetime"),
        ("latin1", "group_name varchar(255), `key` varchar(255), done_at datetime"),
        (
            "mariadb",
            "group_name varbinary(1020), `key` varchar(255) collate utf8mb4_bin, done_at datetime",
        ),
        ("sqlite", "group_name varchar(255), key varchar(255) collate nocase, done_at datetime"),
        (
            "postgresql",
            "group_name varchar(255), key varchar(255) collate nocase, done_at timestamptz",
        ),
    ],
)
def test_a_table_that_is_there_is_checked_and_told_how_to_alter(
    databases: Databases, tmp_path: Path, kind: str, columns: str
) -> None:
    engine = create_engine(databases.url(kind, tmp_path), poolclass=NullPool)
    metadata = MetaData()
    done = Done(metadata, "billing")
    key = "`key`" if "`" in columns else "key"
    if kind == "postgresql":
        nocase = (
            "create collation nocase (provider=icu, locale='und-u-ks-level2', deterministic=false)"
        )
        with engine.begin() as connection:
            connection.execute(text(nocase))
    with engine.begin() as connection:
        connection.execute(
            text(f"create table latermq_done ({columns}, primary key (group_name, {key}))")
        )
        connection.execute(
            text(f"insert into latermq_done (group_name, {key}) values ('billing', 'x')")
        )
    with engine.connect() as connection, pytest.raises(InexactTableError) as refused:
        done.check(connection)
    assert "latermq_done" in str(refused.value)
    with pytest.raises(InexactTableError, match="key is"):
        first(engine, done, "x")
    if kind == "sqlite":
        engine.dispose()
        return  # its statements are a way to go, not all SQL
    with engine.begin() as connection:
        for statement in refused.value.statements:
            connection.execute(text(statement))
    assert [first(engine, done, each) for each in ("x", "X", "x ")] == [False, True, True]
    engine.dispose()


async def test_any_session_that_executes_an_insert_serves(tmp_path: Path) -> None:
    metadata = MetaData()
    done = Done(metadata, "billing")
    paid = Table("paid", metadata, Column("id", Integer, primary_key=True))
    engines = [create_engine(f"sqlite:///{tmp_path}/{n}", poolclass=NullPool) for n in range(2)]
    for each in engines:
        metadata.create_all(each)

    class Routing(Session):
        def get_bind(self, mapper: Any = None, *, clause: Any = None, **more: Any) -> Engine:
            return engines[clause is not None and clause.is_insert]

    makers: list[Callable[[], Any]] = [
        sessionmaker(engines[1]),
        scoped_session(sessionmaker(engines[1])),
        sessionmaker(binds={done.table: engines[1], paid: engines[0]}),
        sessionmaker(class_=Routing),
    ]
    for number, maker in enumerate(makers):
        with maker() as session:
            given = maker if isinstance(maker, scoped_session) else session
            assert done.first_time(given, f"order-{number}")
            assert not done.first_time(given, f"order-{number}")
            session.commit()
    with engines[0].connect() as empty, engines[1].connect() as full:
        count = select(func.count()).select_from(done.table)
        assert (empty.scalar(count), full.scalar(count)) == (0, len(makers))

    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/1", poolclass=NullPool)
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=threading.get_ident)
    async with scoped() as session:
        assert await done.first_time_async(scoped, "order-a")
        await session.commit()
    async with AsyncSession(engine) as other:
        await done.check_async(other)
        assert not await done.first_time_async(other, "order-a")
    await engine.dispose()


def test_a_schema_is_the_metadatas_or_a_sessions(databases: Databases, tmp_path: Path) -> None:
    engine = create_engine(databases.url("postgresql", tmp_path), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("create schema app"))
        connection.execute(text("create schema tenant"))
    metadata = MetaData(schema="app")
    done, other = Done(metadata, "billing"), Done(metadata, "shipping")
    assert done.table is other.table
    metadata.create_all(engine)
    assert [first(engine, each, "x") for each in (done, other, done)] == [True, True, False]

    tenant = engine.execution_options(schema_translate_map={"app": "tenant"})
    metadata.create_all(tenant)
    assert [first(tenant, done, "x") for _ in range(2)] == [True, False]
    engine.dispose()


def test_flask_sqlalchemys_session_serves(tmp_path: Path) -> None:
    flask = pytest.importorskip("flask")
    extension = pytest.importorskip("flask_sqlalchemy", reason="Flask-SQLAlchemy is not installed")
    app = flask.Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path}/db"
    db = extension.SQLAlchemy(app)
    done = Done(db.metadata, "billing")
    with app.app_context():
        db.create_all()
        assert [done.first_time(db.session, "order-17") for _ in range(2)] == [True, False]
        db.session.commit()
        db.engine.dispose()
