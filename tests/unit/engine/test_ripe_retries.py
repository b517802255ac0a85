"""Retries whose time has come and that nobody receives: however many, all are listed."""

import pytest

from latermq_broker.engine import pending
from latermq_broker.engine.model import PendingFilter, PendingKind
from support.engine_rig import EngineRig


@pytest.mark.parametrize("ahead_ms", [0, 5_000])
@pytest.mark.parametrize("page_size", [1, 7, 9])
def test_pages_show_each_once_in_order(
    monkeypatch: pytest.MonkeyPatch, page_size: int, ahead_ms: int
) -> None:
    monkeypatch.setattr(pending, "SCAN_MAX", 9)
    rig = EngineRig()
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
