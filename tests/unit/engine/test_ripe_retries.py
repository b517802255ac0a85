"""Retries whose time has come and that nobody receives: however many, all are listed."""

from collections.abc import Iterator

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.config.core_bounds import ScanBounds
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.engine.state.model import PendingFilter, PendingKind
from support.engine_rig import EngineRig


def looking_at(entries_max: int, rows: int = 4_096) -> EngineRig:
    """Make a rig whose pages of what waits look at no more."""
    bounds = ScanBounds(page_entries_max=entries_max, page_rows_max=rows)
    return EngineRig(delivery=DeliveryConfig(bounds=bounds))


@pytest.mark.parametrize("ahead_ms", [0, 5_000])
@pytest.mark.parametrize("page_size", [1, 7, 9])
def test_pages_show_each_once_in_order(page_size: int, ahead_ms: int) -> None:
    rig = looking_at(9)
    for number in range(30):
        rig.send(f"m{number:02}")
    for number in range(30):
        rig.receive(count=1, lease_ms=10 + number // 2)
    rig.advance(100)
    while rig.engine.tick(rig.now_ms) == rig.now_ms:
        pass
    rig.engine.wall.ahead_ms = ahead_ms
    seen: list[tuple[int, bytes]] = []
    token = ""
    while True:
        items, token = rig.engine.pending.page(
            PendingFilter(kind=PendingKind.BACKOFF), page_size, token, scan_max=9
        )
        seen += [(item.due_ms, item.sys) for item in items]
        if not token:
            break
    assert seen == sorted(seen)
    assert [sys for _, sys in seen] == [b"m%02d" % number for number in range(30)]


@pytest.mark.parametrize("ready_rows", [1, 4, 100])
@pytest.mark.parametrize("page_size", [1, 7, 100])
def test_more_than_a_page_looks_at_come_slice_by_slice(page_size: int, ready_rows: int) -> None:
    """Each is listed once, before all that is due later, though some are taken in between."""
    rig = looking_at(9, ready_rows)
    for number in range(30):
        rig.send(f"m{number:02}")
    for number in range(30):
        rig.receive(count=1, lease_ms=10 + 7 * number % 30)
    rig.advance(100)
    while rig.engine.tick(rig.now_ms) == rig.now_ms:
        pass
    for number in range(3):
        rig.send(f"late{number}", wait_ms=5_000)
    seen: list[bytes] = []
    token = ""
    taken: set[bytes] = set()
    while True:
        items, token = rig.engine.pending.page(PendingFilter(), page_size, token, scan_max=9)
        assert [item.due_ms for item in items if ready_rows == 100] == sorted(
            item.due_ms for item in items if ready_rows == 100
        )
        seen += [item.sys for item in items]
        if seen and not taken:
            taken = {held.sys for held in rig.receive(count=12)}
        if not token:
            break
    ready = [name for name in seen if name.startswith(b"m")]
    assert seen[-3:] == [b"late0", b"late1", b"late2"]
    everybody = {b"m%02d" % number for number in range(30)}
    assert set(ready) == everybody
    twice = {name for name in ready if ready.count(name) > 1}
    assert twice <= taken  # as a retry that was ready, and as a lease


def test_many_retries_and_a_due_time() -> None:
    rig = looking_at(9, 4)
    for number in range(30):
        rig.send(f"m{number:02}")
    for number in range(30):
        rig.receive(count=1, lease_ms=10 + 7 * number % 30)
    due_ms = rig.now_ms + 25
    rig.advance(100)
    while rig.engine.tick(rig.now_ms) == rig.now_ms:
        pass
    seen: list[bytes] = []
    token = ""
    while True:
        wanted = PendingFilter(kind=PendingKind.BACKOFF, due_before_ms=due_ms)
        items, token = rig.engine.pending.page(wanted, 5, token, scan_max=9)
        seen += [item.sys for item in items]
        if not token:
            break
    assert sorted(seen) == [b"m%02d" % n for n in range(30) if 10 + 7 * n % 30 < 25]


def test_a_page_takes_apart_no_more_slices_than_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = looking_at(9, 4)
    for number in range(30):
        rig.send(f"m{number:02}")
        rig.receive(count=1, lease_ms=10)
    rig.advance(100)
    taken: list[int] = []
    whole = Leases.ready_slices

    def counted(leases: Leases, row: int, rows: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        for first, ready in whole(leases, row, rows):
            taken.append(len(ready))
            yield first, ready

    monkeypatch.setattr(Leases, "ready_slices", counted)
    items, token = rig.engine.pending.page(PendingFilter(), 5)
    assert (len(items), len(taken)) == (5, 2)
    taken.clear()
    items, _ = rig.engine.pending.page(PendingFilter(), 5, token)
    assert (len(items), len(taken)) == (5, 2)


def test_slices_have_fixed_rows() -> None:
    leases = Leases()
    for row in range(1, 10_001):
        leases.add(
            id=row,
            group_id=1,
            topic_id=1,
            queue_id=0,
            offset=row,
            position=8 * row,
            length=100,
            tag_hash=0,
        )
    slices = leases.ready_slices(5_000, 4_096)
    assert [(first, len(ready)) for first, ready in slices] == [(4_097, 4_096), (8_193, 1_808)]


def test_redriven_letters_come_first() -> None:
    rig = EngineRig()
    for name in ("held", "letter"):
        rig.send(name)
    held, letter = rig.receive(count=2, lease_ms=10)
    rig.engine.forward("billing", letter.handle, rig.now_ms)
    rig.advance(20)
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.engine.wall.ahead_ms = -3_600_000
    first, token = rig.engine.pending.page(PendingFilter(kind=PendingKind.BACKOFF), 1)
    second, end = rig.engine.pending.page(PendingFilter(kind=PendingKind.BACKOFF), 1, token)
    assert [item.sys for item in (*first, *second)] == [b"letter", b"held"]
    assert held.handle
    items, _ = rig.engine.pending.page(PendingFilter(kind=PendingKind.BACKOFF), 9, end)
    assert not items or end == ""
