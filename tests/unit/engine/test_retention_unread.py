"""Old messages that a group has not read stay until there is no room, or they are older still."""

import logging
from typing import Final

import pytest

from latermq_broker.config.config import StoreConfig
from latermq_broker.config.toml_file import load
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.errors import ConfigError
from latermq_broker.store.files import Space
from support.engine_rig import EngineRig, short_store
from support.recount import check_uses

MINUTE_MS: Final = 60_000
BODY: Final = b"x" * 1_000
KEPT: Final = "old messages are kept: a group has not read them"
REMOVED: Final = "messages removed unread"


def rig_with(**settings: int) -> EngineRig:
    store = short_store(retention_ms=MINUTE_MS, **{"unread_retention_ms": 0, **settings})
    return EngineRig(store=store)


def fill(rig: EngineRig, segments: int = 4, topic: str = "orders") -> int:
    """Messages over so many segments; how many."""
    count, wanted = 0, len(rig.engine.store.log.segments) + segments
    while len(rig.engine.store.log.segments) < wanted:
        rig.send("f", topic=topic, body=BODY)
        count += 1
    rig.checkpoint()
    return count


def grow_old(rig: EngineRig) -> None:
    rig.advance(2 * MINUTE_MS)
    for _ in range(30):
        rig.advance(1_000)
        rig.retain()
    check_uses(rig.engine)


def earliest(rig: EngineRig, topic: str = "orders") -> int:
    return rig.engine.queues.ends(topic, 0).earliest_offset


def read_all(rig: EngineRig, group: str = "billing") -> None:
    while got := rig.receive(group, count=32):
        rig.ack(*got, group=group)


def test_old_messages_stay_for_the_group_that_has_not_read_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = rig_with()
    rig.send("first")
    rig.ack(*rig.receive())
    rig.receive("fast", count=1)
    fill(rig)
    read_all(rig, "fast")
    with caplog.at_level(logging.WARNING):
        grow_old(rig)
        grow_old(rig)
    assert earliest(rig) == 0
    retention = rig.engine.retention
    assert retention.segments_dropped == retention.trims.entries_expired_unread == 0
    assert retention.kept_unread_bytes > 0
    assert retention.kept_for[:2] == ("billing", "orders")
    (kept,) = [record for record in caplog.records if record.message == KEPT]
    assert (kept.__dict__["group"], kept.__dict__["topic"]) == ("billing", "orders")
    read_all(rig)
    grow_old(rig)
    assert retention.segments_dropped > 0
    assert earliest(rig) > 0
    assert retention.trims.entries_expired_unread == 0
    assert (retention.kept_unread_bytes, *retention.kept_for) == (0, "", "", 0)


def test_what_every_group_has_read_of_older_segments_goes() -> None:
    rig = rig_with()
    rig.send("first")
    rig.ack(*rig.receive())
    fill(rig)
    read_all(rig)
    fill(rig)
    grow_old(rig)
    assert rig.engine.retention.segments_dropped >= 3
    assert 0 < earliest(rig) <= rig.engine.queues.ends("orders", 0).next_offset
    unread = rig.engine.groups.describe("billing").topics[0].ready_count
    read = 0
    while got := rig.receive(count=32):
        rig.ack(*got)
        read += len(got)
    assert read == unread > 0


def test_a_topic_that_no_group_reads_goes_by_its_age() -> None:
    rig = rig_with()
    fill(rig)
    grow_old(rig)
    assert rig.engine.retention.segments_dropped > 0


def test_on_a_disk_nearly_full_the_oldest_go_first_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = rig_with()
    rig.send("first")
    rig.ack(*rig.receive())
    fill(rig)
    grow_old(rig)
    assert rig.engine.retention.segments_dropped == 0
    rig.engine.store.disk.look(Space(8, 100))
    with caplog.at_level(logging.WARNING):
        grow_old(rig)
    retention = rig.engine.retention
    assert retention.segments_dropped > 0
    removed = [record.__dict__ for record in caplog.records if record.message == REMOVED]
    assert {(each["group"], each["topic"]) for each in removed} == {("billing", "orders")}
    lost = sum(each["count"] for each in removed)
    assert lost == retention.trims.entries_expired_unread == earliest(rig) - 1
    flow = rig.engine._state.subscriptions[1, 1].flow
    assert flow is not None
    assert flow.expired_unread == lost


def test_what_is_young_stays_on_a_disk_nearly_full() -> None:
    rig = rig_with()
    rig.send("first")
    rig.ack(*rig.receive())
    fill(rig)
    rig.engine.store.disk.look(Space(8, 100))
    rig.advance(20_000)
    rig.retain()
    assert rig.engine.retention.segments_dropped == 0


def test_unread_messages_go_at_an_age_of_their_own() -> None:
    rig = rig_with(unread_retention_ms=10 * MINUTE_MS)
    rig.send("first")
    rig.ack(*rig.receive())
    fill(rig)
    grow_old(rig)
    assert rig.engine.retention.segments_dropped == 0
    rig.advance(10 * MINUTE_MS)
    grow_old(rig)
    assert rig.engine.retention.segments_dropped > 0
    assert rig.engine.retention.trims.entries_expired_unread > 0


def test_a_log_over_its_size_loses_what_is_unread() -> None:
    rig = rig_with(retention_bytes=32 << 10)
    rig.send("first")
    rig.ack(*rig.receive())
    fill(rig, 6)
    grow_old(rig)
    assert len(rig.engine.store.log.segments) <= 3
    assert rig.engine.retention.trims.entries_expired_unread > 0


def test_what_a_message_group_holds_back_is_unread() -> None:
    rig = rig_with()
    rig.engine.groups.create("ledger", fifo=True, max_attempts=0, backoff=None, now_ms=rig.now_ms)
    rig.engine.send(
        [Outgoing("orders", b"r", b"s", name, message_group="g") for name in "ab"], rig.now_ms
    )
    rig.engine.write()
    rig.receive("ledger", count=1, lease_ms=3_600_000)
    fill(rig, topic="filler")
    grow_old(rig)
    assert rig.engine.retention.kept_for[:2] == ("ledger", "orders")


def test_who_set_the_age_before_there_were_two_meant_all_messages(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("c") / "latermq.toml"
    file.write_text("[store]\nretention_ms = 86400000\n")
    assert load(file, {}, {}).store.unread_retention_ms == 86_400_000
    assert load(None, {"LATERMQ_STORE_RETENTION_MS": "5000"}, {}).store.unread_retention_ms == 5_000
    assert load(None, {}, {"store.retention_ms": 0}).store.unread_retention_ms == 0
    both = {"LATERMQ_STORE_UNREAD_RETENTION_MS": "0"}
    assert load(file, both, {}).store.unread_retention_ms == 0
    assert load(None, {}, {}).store.unread_retention_ms == 0


@pytest.mark.parametrize(("retention_ms", "unread_ms"), [(5_000, 1_000), (0, 1_000), (5_000, -1)])
def test_bounds(retention_ms: int, unread_ms: int) -> None:
    with pytest.raises(ConfigError, match=r"store\.unread_retention_ms"):
        StoreConfig(retention_ms=retention_ms, unread_retention_ms=unread_ms)
