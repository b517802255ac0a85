"""The shipped alerts over lives of brokers: which fire, when, and which never do."""

import shutil
from pathlib import Path

import pytest

from latermq_broker.catalog.catalog import Backoff, BackoffKind
from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import OnDead, Outgoing
from support.alert_life import AlertLife
from support.engine_rig import EngineRig

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)"
)
HALF_HOUR_MS = 1_800_000
NOBODY = "LaterMQNobodyReceives billing orders"
BEHIND = "LaterMQGroupBehind billing orders"
SLOW = "LaterMQGroupSlow billing orders"
FAILS = "LaterMQRetriesFail billing orders"
DEAD = "LaterMQDeadLetters billing orders"


def dying() -> EngineRig:
    return EngineRig(delivery=DeliveryConfig(max_attempts=1))


def let_die(rig: EngineRig, count: int = 3) -> None:
    """Send messages, which become dead letters before the next scrape."""
    rig.send(*(f"m{n}" for n in range(count)))
    for delivered in rig.receive(push=True):
        rig.engine.change_invisible("billing", delivered.handle, 1_000, rig.now_ms)
    rig.engine.write()


def consume(rig: EngineRig) -> None:
    rig.ack(*rig.receive(count=100))


def with_backoff(rig: EngineRig, *, fifo: bool) -> None:
    """Create the group `billing`, whose failed messages wait for half an hour."""
    backoff = Backoff(kind=BackoffKind.LADDER, delays_ms=(HALF_HOUR_MS,))
    rig.engine.groups.create(
        "billing", fifo=fifo, max_attempts=10, backoff=backoff, on_dead=OnDead.SKIP,
        now_ms=rig.now_ms,
    )  # fmt: skip


def fail_all(rig: EngineRig, count: int = 32) -> None:
    for delivered in rig.receive(count=count, push=True, lease_ms=600_000):
        rig.engine.change_invisible("billing", delivered.handle, HALF_HOUR_MS, rig.now_ms)
    rig.engine.write()


def put(rig: EngineRig, *names: str) -> None:
    """Send messages of message groups: `a1` is of `a`."""
    sent = [Outgoing("orders", b"x", name.encode(), name, message_group=name[0]) for name in names]
    rig.engine.send(sent, rig.now_ms)
    rig.engine.write()


def test_a_group_that_works_alerts_nobody_from_its_first_minute_on(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    life.live(5)

    def work() -> None:
        rig.send("a", "b")
        consume(rig)

    life.live(30, work)
    life.live(30)  # idle
    rig.restart()
    life.live(30, work)
    life.check(tmp_path, set())


@pytest.mark.parametrize("minutes_before", [0, 5, 60])
def test_letters_of_a_groups_first_minute_alert(tmp_path: Path, minutes_before: int) -> None:
    rig = dying()
    life = AlertLife(rig)
    life.live(minutes_before)
    let_die(rig)
    life.live(1)
    life.expect(DEAD)
    life.live(11)
    life.expect()
    life.live(60)
    let_die(rig, 1)
    life.live(1)
    life.expect(DEAD)
    life.live(20)
    life.check(tmp_path, {DEAD})


@pytest.mark.parametrize("minutes_down", [0, 1, 20])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_letters_before_the_first_scrape_of_a_start_alert(
    tmp_path: Path, minutes_down: int, count: int
) -> None:
    rig = dying()
    let_die(rig)
    life = AlertLife(rig)
    life.live(30)
    life.expect()
    life.be_down(minutes_down)
    rig.restart()
    let_die(rig, count)
    life.live(1)
    life.expect(DEAD)
    life.live(11)
    life.expect()
    life.check(tmp_path, {DEAD} | ({"LaterMQDown"} if minutes_down == 20 else set()))


def test_old_letters_alert_no_new_prometheus(tmp_path: Path) -> None:
    rig = dying()
    let_die(rig)
    rig.advance(3_600_000)
    life = AlertLife(rig, began_ms=rig.now_ms)
    life.live(30)
    life.check(tmp_path, set())


def test_messages_that_nobody_receives_alert_until_somebody_does(tmp_path: Path) -> None:
    rig = EngineRig()
    rig.send("a")
    consume(rig)
    life = AlertLife(rig)
    life.live(60)
    rig.send("b")
    life.live(9)
    life.expect()
    life.live(8)
    life.expect(NOBODY, BEHIND)
    life.live(1, lambda: consume(rig))
    life.expect()
    life.check(tmp_path, {NOBODY, BEHIND})


def test_a_new_group_is_given_ten_minutes(tmp_path: Path) -> None:
    rig = EngineRig()
    life = AlertLife(rig)
    rig.send("a", "b")
    rig.ack(*rig.receive(count=1))
    life.live(9.5)
    life.expect()
    life.live(8)
    life.expect(NOBODY, BEHIND)
    life.check(tmp_path, {NOBODY, BEHIND})


def test_a_deleted_group_and_topic_alert_no_longer(tmp_path: Path) -> None:
    rig = EngineRig()
    for topic in ("orders", "returns"):
        rig.send("a", "b", topic=topic)
        rig.ack(*rig.receive(count=1, topic=topic))
    life = AlertLife(rig)
    life.live(30)
    returns = ("LaterMQNobodyReceives billing returns", "LaterMQGroupBehind billing returns")
    life.expect(NOBODY, BEHIND, *returns)
    rig.engine.topics.delete("returns", rig.now_ms)
    rig.engine.write()
    life.live(1)
    life.expect(NOBODY, BEHIND)
    rig.engine.groups.delete("billing", rig.now_ms)
    rig.engine.write()
    life.live(1)
    life.expect()
    life.live(15, lambda: consume(rig))  # made again
    life.expect()
    life.check(tmp_path, {NOBODY, BEHIND, SLOW, *returns})


def test_a_blocked_key_is_no_idle_consumer(tmp_path: Path) -> None:
    rig = EngineRig()
    with_backoff(rig, fifo=True)
    put(rig, "a1", "a2", "a3")
    life = AlertLife(rig)

    def work() -> None:
        fail_all(rig, 1)

    life.live(9, work)
    life.expect()
    life.live(6, work)
    life.expect(BEHIND)  # a2 and a3 wait
    life.live(10, work)
    life.expect(BEHIND)
    put(rig, "b1")  # of a key that is not blocked, and the consumer is gone
    life.live(4)
    life.expect(BEHIND)
    life.live(30)
    life.expect(BEHIND, NOBODY)
    life.check(tmp_path, {BEHIND, NOBODY})


def test_a_key_that_a_consumer_holds_is_held_whole(tmp_path: Path) -> None:
    rig = EngineRig()
    with_backoff(rig, fifo=True)
    put(rig, "a1", "a2")
    rig.receive(count=1, push=True, lease_ms=3 * HALF_HOUR_MS)
    life = AlertLife(rig)
    life.live(25, lambda: rig.receive(push=True))
    held = "LaterMQAllIsHeld billing orders"
    life.expect(BEHIND, held)
    life.check(tmp_path, {BEHIND, held})


def test_retries_that_wait_half_an_hour_and_fail_again_alert(tmp_path: Path) -> None:
    rig = EngineRig()
    with_backoff(rig, fifo=False)
    rig.send("a")
    consume(rig)
    life = AlertLife(rig)
    life.live(5)
    rig.send(*(f"m{n}" for n in range(20)))
    life.live(30, lambda: fail_all(rig))
    life.expect()
    life.live(10, lambda: fail_all(rig))
    life.live(6, lambda: fail_all(rig))
    life.expect(FAILS)
    life.live(30, lambda: consume(rig))
    life.live(60)
    life.expect()
    life.check(tmp_path, {FAILS, SLOW})


def test_retries_that_wait_half_an_hour_and_succeed_are_slow_only(tmp_path: Path) -> None:
    rig = EngineRig()
    with_backoff(rig, fifo=False)
    rig.send("a")
    consume(rig)
    life = AlertLife(rig)
    life.live(5)
    rig.send(*(f"m{n}" for n in range(20)))
    life.live(0.5, lambda: fail_all(rig))
    life.live(60, lambda: consume(rig))
    life.check(tmp_path, {SLOW})


def test_a_start_with_a_backlog_that_is_soon_read_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    rig.send("a")
    consume(rig)
    life = AlertLife(rig)
    life.live(20)
    rig.send("b", "c", wait_ms=60_000)
    rig.send("d")
    life.be_down(20)
    rig.crash()
    life.live(1)
    life.live(30, lambda: consume(rig))
    life.check(tmp_path, {"LaterMQDown"})


def test_one_shard_of_eight_that_fails_alerts_by_its_number(tmp_path: Path) -> None:
    rigs = [EngineRig() for _ in range(8)]
    for rig in rigs:
        with_backoff(rig, fifo=False)
    life = AlertLife(*rigs)

    def work() -> None:
        for rig in rigs:
            rig.send("a")
            (fail_all if rig is rigs[3] else consume)(rig)

    life.live(20, work)
    fails = "LaterMQAttemptsFail 3 billing orders"
    life.expect(fails)
    life.check(tmp_path, {fails})


def test_a_new_group_that_reads_an_old_backlog_alerts_nobody(tmp_path: Path) -> None:
    rig = EngineRig()
    rig.send(*(f"m{n}" for n in range(20)))
    life = AlertLife(rig)
    life.live(60)
    life.live(5, lambda: rig.ack(*rig.receive(count=1)))
    life.live(30, lambda: consume(rig))
    life.check(tmp_path, set())


@pytest.mark.parametrize("minutes_down", [0, 30])
def test_messages_that_went_unread_at_a_start_alert(tmp_path: Path, minutes_down: int) -> None:
    rig = EngineRig()
    rig.send("a")
    consume(rig)
    life = AlertLife(rig)
    life.live(30)
    life.be_down(minutes_down)
    rig.crash()
    flow = next(iter(rig.engine._state.subscriptions.values())).flowing()
    flow.expired_unread += 3
    life.live(1)
    expired = "LaterMQExpiredUnread billing orders"
    life.expect(expired)
    life.live(20)
    life.expect()
    life.check(tmp_path, {expired} | ({"LaterMQDown"} if minutes_down else set()))
