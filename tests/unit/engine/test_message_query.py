"""Finding messages by id, key and time, and telling where they are in their life."""

from pathlib import Path

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.config.core_bounds import StoreBounds
from latermq_broker.delivery.failure import Failure
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import DeadFilter, DeadState, OnDead, Outgoing, TopicType
from latermq_broker.engine.views import message_query
from latermq_broker.engine.views.message_life import LifeState
from latermq_broker.engine.views.message_place import Whereabouts
from latermq_broker.engine.views.message_query import Found
from latermq_broker.errors import IndexRebuildingError, TopicNotFoundError
from latermq_broker.store.derived import message_index
from support.engine_rig import SMALL_STORE, START_MS, EngineRig, short_store
from support.index_contents import indexed
from support.small_bounds import bounded

BLOCKS = StoreBounds(index_block_entries_max=40)
FAILURE = Failure("TimeoutError", "too slow", "")


def send_keyed(
    rig: EngineRig, name: str, *keys: str, topic: str = "orders", wait_ms: int = 0
) -> None:
    message = Outgoing(
        topic=topic,
        rest=b"body",
        sys=b"".join(b"\x12" + bytes([len(key)]) + key.encode() for key in keys),
        message_id=name,
        keys=keys,
        deliver_at_ms=rig.now_ms + wait_ms if wait_ms else 0,
    )
    rig.engine.send([message], rig.now_ms)
    rig.engine.write()


def by_key(engine: Engine, key: str, begin_ms: int = 0, end_ms: int = 0) -> list[int]:
    found: list[Found] = []
    cursor = message_query.FROM_THE_END
    while cursor:
        more, cursor = engine.messages.by_key("orders", key, begin_ms, end_ms, cursor)
        found += more
    return [one.queue_offset for one in found]


def by_id(engine: Engine, message_id: str, topic: str = "") -> list[Found]:
    found, cursor = engine.messages.by_id(message_id, topic)
    assert not cursor
    return found


def by_time(engine: Engine, begin_ms: int, end_ms: int, page: int = 3) -> list[tuple[int, int]]:
    found, cursor = engine.messages.by_time("orders", begin_ms, end_ms, None, page)
    while cursor:
        more, cursor = engine.messages.by_time("orders", begin_ms, end_ms, cursor, page)
        found += more
    return [(one.queue_id, one.queue_offset) for one in found]


def die(rig: EngineRig, group: str = "billing") -> None:
    (delivered,) = rig.receive(group, count=1)
    rig.engine.forward(group, delivered.handle, rig.now_ms)
    rig.engine.write()


def test_by_id_and_by_topic_and_id() -> None:
    rig = EngineRig()
    rig.send("a", "b")
    rig.send("a", topic="other")
    assert [(one.topic, one.queue_offset, one.sys) for one in by_id(rig.engine, "a")] == [
        ("other", 0, b"a"),
        ("orders", 0, b"a"),
    ]
    assert [one.topic for one in by_id(rig.engine, "a", "orders")] == ["orders"]
    assert by_id(rig.engine, "c") == []
    with pytest.raises(TopicNotFoundError):
        rig.engine.messages.by_id("a", "nowhere")
    rig.engine.topics.delete("other", rig.now_ms)
    assert [one.topic for one in by_id(rig.engine, "a")] == ["orders"]


def test_by_key_newest_first_in_its_topic_and_its_time() -> None:
    rig = EngineRig()
    for n in range(100):
        send_keyed(rig, f"m{n}", "all", f"third-{n % 3}")
        send_keyed(rig, f"m{n}", "all", topic="other")
        rig.now_ms += 10
    assert by_key(rig.engine, "all") == list(range(99, -1, -1))
    assert by_key(rig.engine, "third-1") == [n for n in range(99, -1, -1) if n % 3 == 1]
    at = START_MS + 500
    assert by_key(rig.engine, "all", at, at + 20) == [52, 51, 50]
    assert by_key(rig.engine, "all", at + 480) == [99, 98]
    assert by_key(rig.engine, "none") == []


def test_by_time_over_all_queues_in_order_without_a_gap() -> None:
    rig = EngineRig()
    rig.engine.topics.create("orders", TopicType.NORMAL, 3, rig.now_ms)
    sent: list[tuple[int, int]] = []
    for n in range(60):
        (one,) = rig.send(f"m{n}")
        sent.append((one.queue_id, one.queue_offset))
        rig.now_ms += n % 4 == 0
    everything = by_time(rig.engine, 0, 0)
    assert sorted(everything) == sorted(sent)
    for page in (1, 2, 7, 100):
        assert by_time(rig.engine, 0, 0, page) == everything
    some = by_time(rig.engine, START_MS + 3, START_MS + 5)
    assert sorted(some) == sorted(sent[9:21])
    assert by_time(rig.engine, START_MS + 100, 0) == []


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_restart_finds_what_was_found_before(checkpointed: bool) -> None:
    rig = EngineRig(store=bounded(SMALL_STORE, BLOCKS))
    for n in range(200):
        send_keyed(rig, f"m{n}", f"key-{n % 5}")
        if checkpointed and n in (50, 150):
            rig.checkpoint()
    before = indexed(rig.engine)
    assert len(before) == 400
    engine = rig.crash()
    assert indexed(engine) == before
    assert by_key(engine, "key-4") == list(range(199, 0, -5))
    assert [one.queue_offset for one in by_id(engine, "m77")] == [77]


@pytest.mark.parametrize("harm", ["one block", "every block", "checkpoint of an older version"])
def test_a_damaged_index_is_made_again_from_the_log(
    harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = EngineRig(store=bounded(short_store(retention_ms=0), BLOCKS))
    for n in range(300):
        send_keyed(rig, f"m{n}", "all")
    die(rig)
    if harm == "checkpoint of an older version":
        monkeypatch.setattr(message_index.MessageIndex, "sections", lambda self: {})
    rig.checkpoint()
    monkeypatch.undo()
    before = {(hash, position) for hash, position in indexed(rig.engine)}
    assert len(rig.segments()) > 2
    blocks = [path for path in rig.files.inodes if path.suffix == ".idx"]  # type: ignore[attr-defined]
    for path in blocks[1:2] if harm == "one block" else blocks:
        rig.files.unlink(path)
    rig.engine.write()
    rig.engine.abandon()
    engine = rig.engine = rig.reopened()
    with pytest.raises(IndexRebuildingError):
        by_key(engine, "all")
    for _ in range(30):
        rig.advance(100)
        rig.checkpoint()
    assert indexed(engine) == before
    assert by_key(engine, "all") == list(range(299, -1, -1))
    assert indexed(rig.crash()) == before


def test_what_is_rolled_forward_stays_findable_and_what_expired_is_gone() -> None:
    rig = EngineRig(store=short_store())
    send_keyed(rig, "late", "all", wait_ms=3_600_000)
    send_keyed(rig, "dies", "all")
    die(rig)
    for n in range(300):
        send_keyed(rig, f"m{n}", "all")
    rig.advance(100_000)
    rig.retain()
    assert rig.segments()[0] > 0
    assert by_id(rig.engine, "m3") == []
    (late,) = by_id(rig.engine, "late")
    assert late.stored_ms == START_MS
    assert late.position > late.first_position
    assert rig.engine.lives.life(late).waits_until_ms == START_MS + 3_600_000
    (letter,) = by_id(rig.engine, "dies")
    assert (letter.topic, letter.origin_topic) == ("%DLQ%billing", "orders")
    found, _ = rig.engine.messages.by_key("%DLQ%billing", "all")
    assert [one.position for one in found] == [letter.position]
    before = indexed(rig.engine)
    assert indexed(rig.crash()) == before


def test_a_message_is_found_once_while_both_its_places_are_there() -> None:
    rig = EngineRig(store=short_store())
    send_keyed(rig, "late", "all", wait_ms=3_600_000)
    (late,) = by_id(rig.engine, "late")
    for n in range(300):
        send_keyed(rig, f"m{n}")
    rig.checkpoint()
    rig.engine.retention.step_cost = 100_000
    rig.now_ms += 100_000
    rig.engine.chores[0].step(rig.now_ms)
    found = by_id(rig.engine, "late")
    assert [one.first_position for one in found] == [late.position]


def states(rig: EngineRig, message_id: str) -> dict[str, LifeState]:
    found = by_id(rig.engine, message_id, "orders")[-1]
    return {one.group: one.state for one in rig.engine.lives.life(found).groups}


def test_the_life_of_a_message_in_each_group() -> None:
    rig = EngineRig()
    for group in ("billing", "mail"):
        rig.engine.ensure_group(group, rig.now_ms)
    rig.send("first", "second")
    assert states(rig, "second") == {}  # nobody reads the topic yet
    assert rig.receive("mail", count=1)
    (held,) = rig.receive("billing", count=1)
    assert states(rig, "first") == {"billing": LifeState.LEASED, "mail": LifeState.LEASED}
    life = rig.engine.lives.life(by_id(rig.engine, "second")[0])
    assert (life.queue_id, life.queue_offset, life.expired) == (0, 1, False)
    assert [(one.state, one.ahead_count) for one in life.groups] == [(LifeState.READY, 0)] * 2
    handle = rig.engine.change_invisible("billing", held.handle, 5_000, rig.now_ms, failure=FAILURE)
    rig.advance(1_000)
    assert states(rig, "first") == {"billing": LifeState.BACKOFF, "mail": LifeState.RETRY}
    rig.engine.forward("billing", handle, rig.now_ms)
    rig.ack(*rig.receive("mail"), group="mail")
    assert states(rig, "first") == {"billing": LifeState.DEAD, "mail": LifeState.DONE}
    (billing, _) = rig.engine.lives.life(by_id(rig.engine, "first", "orders")[0]).groups
    assert (billing.dead_offset, billing.dead_ms) == (0, rig.now_ms)
    assert (billing.dead_state, billing.attempt) == (DeadState.DEAD, 1)
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    assert states(rig, "first")["billing"] is LifeState.RETRY
    (redriven,) = [one for one in rig.receive("billing") if one.sys == b"first"]
    rig.ack(redriven)
    (billing, _) = rig.engine.lives.life(by_id(rig.engine, "first", "orders")[0]).groups
    assert (billing.state, billing.dead_state) == (LifeState.DEAD, DeadState.REDRIVEN)


def test_the_life_of_a_message_that_waits_for_its_message_group() -> None:
    rig = EngineRig()
    rig.engine.groups.create(
        "billing", fifo=True, max_attempts=1, backoff=None, on_dead=OnDead.PARK, now_ms=rig.now_ms
    )
    for name in ("a1", "a2", "a3"):
        rig.engine.send([Outgoing("orders", b"x", b"", name, message_group="a")], rig.now_ms)
    (held,) = rig.receive(count=3)

    def told(name: str) -> tuple[LifeState, int, bool]:
        (one,) = rig.engine.lives.life(by_id(rig.engine, name, "orders")[0]).groups
        return one.state, one.ahead_count, one.parked

    assert told("a1") == (LifeState.LEASED, 0, False)
    rig.receive(count=3)  # looks at the others, which must wait
    assert told("a2") == (LifeState.HELD, 1, False)
    assert told("a3") == (LifeState.HELD, 2, False)
    rig.engine.forward("billing", held.handle, rig.now_ms)
    assert told("a1")[0] is LifeState.DEAD
    assert told("a2") == (LifeState.HELD, 0, True)
    rig.crash()
    assert told("a3") == (LifeState.HELD, 1, True)


def test_the_life_of_a_delayed_message() -> None:
    rig = EngineRig()
    (sent,) = rig.send("late", wait_ms=60_000)
    found = by_id(rig.engine, "late")[0]
    assert (found.queue_id, found.due_ms) == (-1, START_MS + 60_000)
    assert rig.engine.lives.life(found).waits_until_ms == START_MS + 60_000
    rig.engine.pending.postpone(sent.pending_id, START_MS + 90_000, rig.now_ms)
    assert rig.engine.lives.life(found).waits_until_ms == START_MS + 90_000
    rig.advance(90_000)
    rig.send("other")
    rig.ack(*rig.receive(count=1))
    life = rig.engine.lives.life(found)
    assert (life.queue_id, life.queue_offset) == (0, 0)
    assert [one.state for one in life.groups] == [LifeState.DONE]


@pytest.mark.parametrize("how", ["live", "restarted", "forgotten"])
def test_what_was_done_to_delayed_messages_shows(how: str) -> None:
    """Also of more than are remembered: the timer and the queues are looked through."""
    rig = EngineRig()
    for wait_ms in (10_000, 20_000, 30_000):
        rig.send("other", wait_ms=wait_ms)
    ids = {
        name: rig.send(name, wait_ms=60_000)[0].pending_id
        for name in ("sooner", "later", "never", "as sent")
    }
    rig.advance(1_000)
    rig.engine.pending.expedite(ids["sooner"], rig.now_ms)
    rig.engine.pending.postpone(ids["later"], START_MS + 3_600_000, rig.now_ms)
    rig.engine.pending.cancel(ids["never"], rig.now_ms)
    rig.advance(0)
    if how != "live":
        rig.checkpoint()
        rig.crash()
    if how == "forgotten":
        rig.engine._state.timers_moved.restore_over(b"")

    def place(name: str, *, glance: bool = False) -> Whereabouts:
        (found,) = by_id(rig.engine, name)
        if glance:
            return rig.engine.lives.place(found)
        life = rig.engine.lives.life(found)
        return Whereabouts(
            life.queue_id, life.queue_offset, life.waits_until_ms, life.half, life.cancelled
        )

    assert place("sooner") == Whereabouts(0, 0)
    assert place("later") == Whereabouts(waits_until_ms=START_MS + 3_600_000)
    assert place("never") == Whereabouts(cancelled=True)
    assert place("as sent") == Whereabouts(waits_until_ms=START_MS + 60_000)
    if how != "forgotten":
        for name in ids:
            assert place(name, glance=True) == place(name)
    else:  # of one among many not more is told than a glance shows
        assert place("as sent", glance=True) == place("as sent")
        assert place("later", glance=True) == place("later")
        assert place("never", glance=True) == Whereabouts()
    rig.advance(3_600_000)
    for name in ("sooner", "later", "as sent"):
        assert place(name).queue_id == 0
    assert place("never").cancelled
    for _ in range(6):
        rig.ack(*rig.receive(count=1))
    (found,) = by_id(rig.engine, "never")
    assert rig.engine.lives.life(found).groups == ()


def test_a_redriven_letter_shows_what_it_was() -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    rig.send("m", wait_ms=1_000)
    rig.advance(1_000)
    rig.receive(lease_ms=10)
    rig.advance(10)
    (letter,) = rig.engine.dead.scan("billing", DeadFilter()).letters
    rig.engine.dead.redrive("billing", letter.queue_offset, "", rig.now_ms)
    found = next(one for one in by_id(rig.engine, "m") if one.topic == "orders")
    assert rig.engine.lives.place(found) == Whereabouts(0, 0)
    (life,) = rig.engine.lives.life(found).groups
    assert (life.state, life.attempt, life.dead_offset) == (LifeState.RETRY, 0, 0)
    assert life.dead_state is DeadState.REDRIVEN


def test_the_directory_holds_nothing_but_the_named_blocks() -> None:
    rig = EngineRig()
    rig.send("a")
    rig.checkpoint()
    assert rig.files.list_directory(Path("/data/index")) == []
