"""A worker in a program that has Django: connections that the database cut end with the call."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

import latermq.sync
from latermq.testing import BrokerProcess
from support.sql_servers import Databases

SHOP: Final = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "postgres",
    "HOST": sys.argv[1],
    "CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": None, "OPTIONS": {"application_name": "shop"},
}})
import django
django.setup()
from django.db import connection
import latermq
app = latermq.App(sys.argv[2])

def store(x: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    sys.stdout.write(f"{x}\\n")
    sys.stdout.flush()

async def store_waiting(x: str) -> None:
    from asgiref.sync import sync_to_async
    await sync_to_async(store)(x)

app.listener("rows", group="rows", retry="1s", max_attempts=1, concurrency=2)(store)
app.listener("async-rows", group="async-rows", max_attempts=1)(store_waiting)
app.run()
"""


@pytest.fixture
def databases() -> Iterator[Databases]:
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.mark.parametrize("topic", ["rows", "async-rows"])
def test_connections_that_were_cut_fail_no_message(
    topic: str, databases: Databases, latermq_broker: BrokerProcess, tmp_path: Path
) -> None:
    pytest.importorskip("django", reason="Django is not installed")
    url = databases.url("postgresql", tmp_path)
    (host,) = parse_qs(urlsplit(url).query)["host"]
    command = [sys.executable, "-c", SHOP, host, latermq_broker.endpoint]
    admin = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    cut = text(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'shop'"
    )
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE": ""},
        ) as worker,
        latermq.sync.connect(latermq_broker.endpoint) as mq,
    ):  # fmt: skip
        assert worker.stdout is not None
        try:
            for part in ("before", "after", "later"):
                sent = {f"{part}-{number}" for number in range(6)}
                for each in sent:
                    mq.send(topic, each.encode())
                assert {worker.stdout.readline().strip() for _ in sent} == sent
                with admin.connect() as connection:
                    assert connection.scalar(cut) >= 1
            assert latermq_broker.dead(topic) == []
        finally:
            worker.send_signal(signal.SIGTERM)
    admin.dispose()
