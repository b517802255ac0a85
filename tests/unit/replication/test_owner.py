"""An owner at work, where its disk is not."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from latermq_broker.replication import owner as owner_module
from latermq_broker.replication.batch import fence_of
from latermq_broker.replication.note import Note
from latermq_broker.replication.owner import Owner
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.tenure import Tenure
from latermq_broker.replication.validity import EMPTY, judge
from support.log_in_memory import LogInMemory


@pytest.mark.parametrize(
    ("number", "ends"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True)]
)
async def test_a_note_for_which_there_is_no_room_is_written_later(
    monkeypatch: pytest.MonkeyPatch, number: int, ends: bool
) -> None:
    """A disk that is full refuses sends; it does not end an owner. One that fails does."""
    monkeypatch.setattr(owner_module, "NOTE_S", 0.0)
    fence = fence_of(1, 0, 1, 7)
    _, standing = judge(EMPTY, fence, 0)
    tenure = Tenure(fence, Reader(1, 0, standing, 1), 0, 0)
    log: Any = SimpleNamespace(durable=0, written=0)
    errors = [OSError(number, "no")]
    failures: list[BaseException] = []
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def keep(_: Note) -> None:
        if errors:
            raise errors.pop()
        loop.call_soon_threadsafe(over.set)

    def failed(error: BaseException) -> None:
        failures.append(error)
        over.set()

    owner = Owner(LogInMemory(), tenure, log, lambda: 0, Note("shop", 0), keep)
    owner.on_failure = failed
    owner._begin_task(owner._keep_notes())
    await over.wait()
    assert bool(failures) is ends
    await owner.stop(0)
