"""Work that Redis remembers: a real Redis, a worker that is killed, and the guide's example."""

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import latermq
from latermq.idempotency import InHandError, RedisDone
from latermq.testing import BrokerProcess
from support.machine import patient
from support.redis_server import MISSING, REDIS, redis_running

redis = pytest.importorskip("redis", reason="redis-py is not installed")
pytestmark = pytest.mark.skipif(REDIS is None, reason=MISSING)

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide" / "idempotency.md"
FILE: Final = re.compile(r"^```python\n# mail/(\w+\.py)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LONG: Final = timedelta(hours=1)
SHORT: Final = timedelta(milliseconds=50)
DIES: Final = """
import datetime, redis, sys
from latermq.idempotency import RedisDone
done = RedisDone(redis.Redis.from_url(sys.argv[1]), "billing", lease=datetime.timedelta(hours=1))
with done.once("order-17") as first:
    print(first, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_running() as address:
        yield address


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    """A client of an empty Redis, of both kinds of answers."""
    with redis.Redis.from_url(url, decode_responses=request.param) as made:
        made.flushall()
        yield made


def did(done: RedisDone, key: str) -> bool:
    with done.once(key) as first:
        return first


def test_it_is_done_once_and_by_each_group(client: Any) -> None:
    billing, shipping = RedisDone(client, "billing"), RedisDone(client, "shipping")
    assert [did(billing, "a"), did(billing, "a"), did(billing, "b")] == [True, False, True]
    assert did(shipping, "a")
    elsewhere = RedisDone(client, "billing", prefix="shop:done", keep=timedelta(seconds=5))
    assert did(elsewhere, "a")
    assert sorted(client.keys()) == sorted(
        (each if client.get_encoder().decode_responses else each.encode())
        for each in (
            "latermq:done:billing:a", "latermq:done:billing:b", "latermq:done:shipping:a",
            "shop:done:billing:a",
        )
    )  # fmt: skip
    assert 0 < client.pttl("shop:done:billing:a") <= 5_000
    assert client.pttl("latermq:done:billing:a") > timedelta(days=13).total_seconds() * 1_000


def test_what_raises_was_not_done(client: Any) -> None:
    done = RedisDone(client, "billing", lease=LONG)
    with pytest.raises(ValueError, match="no card"), done.once("a"):
        raise ValueError("no card")
    assert did(done, "a")


def test_two_at_a_time_are_told_apart(client: Any) -> None:
    done = RedisDone(client, "billing", lease=LONG)
    with done.once("a") as first:
        assert first
        with (
            pytest.raises(InHandError, match="a is in the hands of another") as refused,
            done.once("a"),
        ):
            pass
        assert timedelta(minutes=59) < refused.value.retry_in <= LONG
    assert not did(done, "a")


def test_a_worker_that_is_killed_leaves_its_lease(client: Any, url: str) -> None:
    done = RedisDone(client, "billing", lease=LONG)
    worker = subprocess.Popen(
        [sys.executable, "-c", DIES, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "True\n"
    worker.kill()
    worker.communicate()
    with pytest.raises(InHandError):
        did(done, "order-17")
    client.pexpire("latermq:done:billing:order-17", 1)  # the hour is over
    while client.exists("latermq:done:billing:order-17"):
        pass
    assert did(done, "order-17")
    assert not did(done, "order-17")


def test_who_is_late_takes_nothing_from_who_came_after(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = "latermq:done:billing:a"
    late, next_one = RedisDone(client, "billing", lease=SHORT), RedisDone(client, "billing")

    def over() -> None:
        while client.exists(name):
            pass

    def fails_late() -> None:
        with late.once("a"):
            over()
            assert did(next_one, "a")
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        fails_late()
    assert not did(next_one, "a"), "the late one's failure undid what was done"
    assert "was over before" not in caplog.text
    with late.once("c"):
        while client.exists("latermq:done:billing:c"):
            pass
    assert "the lease of c for billing was over before its work" in caplog.text
    assert not did(next_one, "c")


async def test_the_same_with_asyncio(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.flushall()
        done, begun = RedisDone(client, "billing", lease=LONG), asyncio.Event()

        async def hangs() -> None:
            async with done.once_async("a"):
                begun.set()
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hangs())
        await begun.wait()
        with pytest.raises(InHandError):
            async with done.once_async("a"):
                pass
        hanging.cancel()  # as a worker does when its grace is over
        with pytest.raises(asyncio.CancelledError):
            await hanging
        told = []
        for _ in range(2):
            async with done.once_async("a") as first:
                told.append(first)
        assert told == [True, False]
        with pytest.raises(TypeError, match="use `once_async` with it"), done.once("a"):
            pass


async def test_two_workers_with_one_order_do_it_once(
    url: str, latermq_broker: BrokerProcess
) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.flushall()
        done, app = RedisDone(client, "billing"), latermq.App(latermq_broker.endpoint)
        paid: list[int] = []
        attempts: list[int] = []
        both, over = asyncio.Event(), asyncio.Event()

        @app.listener("orders", group="billing", give_back_on=InHandError, concurrency=2)
        async def bill(order: str, delivery: latermq.Delivery) -> None:
            attempts.append(delivery.attempt)
            if len(attempts) == 2:
                both.set()
            try:
                async with done.once_async(f"order-{order}") as first:
                    if first:
                        await both.wait()  # the other one asks while this one is at it
                        paid.append(int(order))
            except InHandError as error:
                error.retry_in = timedelta(milliseconds=10)  # a test waits for no lease
                raise
            if not first:
                over.set()

        async with latermq_broker.working(app):
            await bill.send("17")
            await bill.send("17")
            async with asyncio.timeout(patient(60)):
                await over.wait()
        assert paid == [17]
        assert set(attempts) == {1}  # what was given back is not counted


def test_a_redis_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "latermq.client")
    with redis_running() as address, redis.Redis.from_url(address, retry=None) as client:
        done = RedisDone(client, "billing")

        def fails() -> None:
            with done.once("a"):
                client.shutdown(nosave=True)
                raise ValueError("no card")

        with pytest.raises(ValueError, match="no card"):
            fails()
        assert "a for billing is tried again when its lease of 60 s is over" in caplog.text
        with pytest.raises(redis.ConnectionError), done.once("a"):
            pytest.fail("nobody knows whether it is done")


def test_a_begin_whose_answer_is_lost_leaves_no_mark(client: Any) -> None:
    """Nobody does the work of a call that raised: the next one may begin at once."""
    done = RedisDone(client, "billing", lease=LONG)
    evaluate = client.eval

    def loses_one(*words: Any) -> Any:
        client.eval = evaluate
        evaluate(*words)
        raise redis.ConnectionError("the answer is lost")

    client.eval = loses_one
    with pytest.raises(redis.ConnectionError), done.once("a"):
        pytest.fail("nobody knows whether it is this call's")
    assert did(done, "a")


def test_what_is_in_hand_within_a_block_gives_the_block_up(client: Any) -> None:
    done, other = RedisDone(client, "billing", lease=LONG), RedisDone(client, "billing", lease=LONG)
    with other.once("b"), pytest.raises(InHandError), done.once("a"), done.once("b"):
        pass
    assert did(done, "a")


def test_a_redis_that_drops_marks_is_told_of_once(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        done = RedisDone(client, "billing")
        assert did(done, "a")
        client.delete(*client.keys())  # evicted
        assert did(done, "a")
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
    assert caplog.text.count("maxmemory-policy is allkeys-lru, and should be noeviction") == 1
    with RedisDone(client, "billing").once("b"):
        client.delete(*client.keys())  # evicted while it is in hand
    assert "may have been done by another worker" in caplog.text


def test_what_cannot_be_kept_is_refused(client: Any) -> None:
    done = RedisDone(client, "billing")
    with pytest.raises(ValueError, match="255 characters"):
        did(done, "x" * 256)
    with pytest.raises(TypeError, match="key must be a str"):
        did(done, 17)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group must not be empty"):
        RedisDone(client, "")
    with pytest.raises(ValueError, match="lease must be a millisecond at least"):
        RedisDone(client, "billing", lease=timedelta(0))
    with pytest.raises(TypeError, match="keep must be a timedelta"):
        RedisDone(client, "billing", keep=5)  # type: ignore[arg-type]


def test_the_guide_s_example_passes(url: str, tmp_path: Path) -> None:
    files = dict(FILE.findall(GUIDE.read_text("utf-8")))
    assert sorted(files) == ["shop.py", "test_shop.py"]
    files["conftest.py"] = 'pytest_plugins = ["latermq.testing.plugin"]\n'
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ended = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o",
            "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function",
        ],
        cwd=tmp_path, env={**os.environ, "REDIS_URL": url}, capture_output=True, text=True,
        timeout=patient(100), check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout
