"""Leases that the broker renews, clause by clause (protocol.md 5.4 and 2.6)."""

import pytest

from latermq_broker.catalog.catalog import Backoff, BackoffKind
from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.model import Delivered
from support.engine_rig import EngineRig
from support.memory_files import MemoryFiles

MINUTE_MS = 60_000
TOTAL_MS = 180 * MINUTE_MS


def held(rig: EngineRig) -> Delivered:
    """One message, leased to a push consumer that has just begun."""
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=MINUTE_MS)
    return one


def live_on(rig: EngineRig, for_ms: int) -> None:
    """The client sends heartbeats, and nothing else."""
    for _ in range(for_ms // 10_000):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)


def test_5_4_each_renewal_reaches_further_and_is_written_shortly_before_the_deadline() -> None:
    rig = EngineRig()
    held(rig)
    deadlines: list[tuple[int, int]] = []
    began_ms = rig.now_ms
    for _ in range(110):
        (delivery,) = rig.engine._state.leases.deliveries.values()
        if not deadlines or delivery.deadline_ms != deadlines[-1][1]:
            deadlines.append((rig.now_ms - began_ms, delivery.deadline_ms))
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)
    assert [(at_ms // 1_000, (end_ms - began_ms) // 1_000) for at_ms, end_ms in deadlines] == [
        (0, 60), (50, 110), (100, 280), (270, 570), (560, 1_160),
    ]  # fmt: skip


@pytest.mark.parametrize("hours", [0, 1, 2])
def test_5_4_the_first_handle_acknowledges_extends_and_forwards_after_renewals(hours: int) -> None:
    for verb in ("ack", "extend", "forward"):
        rig = EngineRig()
        one = held(rig)
        live_on(rig, hours * 60 * MINUTE_MS + 2 * MINUTE_MS)
        if verb == "ack":
            assert rig.ack(one) == [True]
        elif verb == "extend":
            rig.engine.change_invisible("billing", one.handle, 5_000, rig.now_ms)
            assert rig.ack(one) == [False]
        else:
            rig.engine.forward("billing", one.handle, rig.now_ms)
            assert [dead.sys for dead in rig.receive(topic="%DLQ%billing")] == [b"m1"]


@pytest.mark.parametrize(
    ("backoff", "wait_ms"),
    [
        (None, DeliveryConfig().retry_ladder_ms[0]),
        (Backoff(kind=BackoffKind.FIXED, delays_ms=(300_000,)), 300_000),
    ],
)
def test_5_4_three_hours_then_the_groups_wait_then_it_is_back(
    backoff: Backoff | None, wait_ms: int
) -> None:
    rig = EngineRig()
    if backoff is not None:
        rig.engine.groups.create(
            "billing", fifo=False, max_attempts=3, backoff=backoff, now_ms=rig.now_ms
        )
    one = held(rig)
    live_on(rig, TOTAL_MS)
    rig.advance(wait_ms - 1)
    assert rig.receive(client="other") == []
    rig.advance(1)
    assert [again.attempt for again in rig.receive(client="other")] == [2]
    assert rig.ack(one) == [False]


def test_5_4_a_client_that_is_gone_gives_all_it_holds_back_after_a_second() -> None:
    rig = EngineRig()
    rig.send("m1", "m2")
    rig.receive(push=True, lease_ms=MINUTE_MS)
    live_on(rig, 60 * MINUTE_MS)  # the next deadline is far away
    rig.engine.client_gone("client-1", rig.now_ms)
    rig.advance(999)
    assert rig.receive(client="other") == []
    rig.advance(1)
    assert [again.attempt for again in rig.receive(client="other")] == [2, 2]


def test_5_4_a_client_without_a_session_that_falls_silent_is_gone_too() -> None:
    rig = EngineRig()
    held(rig)
    live_on(rig, 60 * MINUTE_MS)
    rig.engine.client_seen("client-1", rig.now_ms)
    rig.advance(120_000)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(2_000)
    assert rig.receive(client="other") == []  # silent for 120 s is still alive
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(1_000)
    assert [again.attempt for again in rig.receive(client="other")] == [2]


def test_5_4_a_client_that_does_not_come_back_after_a_restart_does_not_hold_for_an_hour() -> None:
    rig = EngineRig()
    held(rig)
    live_on(rig, 60 * MINUTE_MS)
    rig.crash()
    rig.advance(119_000)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(1_000)
    assert rig.receive(client="other") == []
    rig.advance(2_000)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(1_000)
    assert [again.attempt for again in rig.receive(client="other")] == [2]
    assert rig.crash().next_deadline_ms() is not None


def goes_on(rig: EngineRig) -> bool:
    """Whether the lease outlives its first minute while its client lives."""
    for _ in range(7):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)
    return not rig.receive(client="other")


@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize(
    ("stops", "renewed"),
    [
        ("drained", True),
        ("drained drained", True),
        ("crash", False),
        ("cut", False),  # in order, but a reply was left in a socket
        ("crash drained", False),  # what the first life said is as unsure as it was
        ("crash drained drained", False),
        ("drained crash", True),  # the client had its reply before the life that was killed
        ("drained crash drained crash", True),
    ],
)
def test_5_4_a_lease_goes_on_unless_its_reply_may_have_died_with_the_broker(
    stops: str, renewed: bool, checkpoints: bool
) -> None:
    rig = EngineRig(files=(files := MemoryFiles()))
    one = held(rig)
    for stop in stops.split():
        rig.now_ms += 1
        if stop == "crash":
            rig.checkpoint()
            rig.engine.abandon()
        else:
            rig.engine.close(rig.now_ms, drained=stop == "drained")
        if not checkpoints:
            for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
                files.unlink(path)
        rig.engine = rig.reopened()
    assert goes_on(rig) is renewed
    assert rig.ack(one) == [renewed]


@pytest.mark.parametrize(
    ("story", "renewed"),
    [
        ("hold", True),
        ("hold lose", False),
        ("hold lose lose", False),  # an owner that has no proof, again and again
        ("hold live lose", True),  # it was renewed: the client had it
        ("lose hold", True),  # over a connection that came later
        # A stop says the same, however it was: what lives is what is restored.
        ("hold lose stop", False),
        ("hold lose stop stop", False),
        ("hold lose crash stop", False),
        ("hold live lose stop", True),
        ("lose hold stop", False),  # the log does not tell when it was
        ("lose live hold stop", True),  # long ago: whatever was in doubt has ended
        ("hold stop lose", True),  # it went out before the life that lost its connections
    ],
)
def test_5_4_a_lease_ends_once_if_its_reply_may_have_died_with_its_connection(
    story: str, renewed: bool
) -> None:
    rig = EngineRig()
    for move in story.split():
        rig.advance(1)
        store = rig.engine.store
        match move:
            case "hold":
                held(rig)
            case "lose":
                store.cut_offs.lose_connections(store.log.last_store_ms)
            case "live":
                live_on(rig, MINUTE_MS)
            case "stop":
                rig.restart(drained=not store.cut_offs.lost_since(rig.now_ms - MINUTE_MS))
            case "crash":
                rig.crash()
    assert goes_on(rig) is renewed


def test_2_6_simple_consumers_keep_what_they_hold() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(lease_ms=60 * MINUTE_MS)
    rig.engine.client_gone("client-1", rig.now_ms)
    rig.advance(200_000)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(2_000)
    assert rig.receive(client="other") == []
    assert rig.ack(one) == [True]


def test_made_up_clients_are_not_remembered_so_they_push_nobody_out() -> None:
    rig = EngineRig()
    held(rig)
    for number in range(10):
        name = f"made up {number}"
        assert not rig.engine.client_seen(name, rig.now_ms)
        assert not rig.engine.client_gone(name, rig.now_ms)
        assert not rig.receive(push=True, client=name)
    assert list(rig.engine._due._seen) == ["client-1"]


def test_who_speaks_for_a_client_in_one_group_ends_nothing_in_another() -> None:
    rig = EngineRig()
    held(rig)
    end = rig.engine.store.log.end
    assert not rig.engine.client_gone("client-1", rig.now_ms, "elsewhere")
    assert not rig.engine.client_seen("client-1", rig.now_ms, "elsewhere")
    rig.receive("elsewhere", push=True, lease_ms=MINUTE_MS)
    end = rig.engine.store.log.end
    assert rig.engine.client_gone("client-1", rig.now_ms, "elsewhere")
    assert rig.engine.store.log.end > end
    deadlines = {
        rig.engine._state.catalog.group_by_id(each.group_id): each.deadline_ms - rig.now_ms
        for each in rig.engine._state.leases.deliveries.values()
    }
    by_name = {group.name: left_ms for group, left_ms in deadlines.items() if group is not None}
    assert by_name == {"billing": MINUTE_MS, "elsewhere": 1_000}
    live_on(rig, 2 * MINUTE_MS)  # it is not taken for gone in the other
    assert rig.receive() == []
