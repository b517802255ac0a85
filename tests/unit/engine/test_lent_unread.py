"""Messages that are lent and whose file cannot be mapped then: no descriptor, or no memory."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from latermq_broker.engine.state.model import Delivered, Outgoing, ReceiveRequest
from latermq_broker.errors import StoreBusyError
from support.engine_rig import EngineRig, short_store
from support.pump_rig import BrokenFiles

FILLER = bytes(1_500)


def rig_of(*, fifo: bool) -> EngineRig:
    """Three messages, in a segment of the log each."""
    rig = EngineRig(files=BrokenFiles(), store=short_store())
    rig.engine.groups.create("billing", fifo=fifo, max_attempts=5, backoff=None, now_ms=rig.now_ms)
    for name in ("m1", "m2", "m3"):
        key = "k" if fifo else ""
        rig.engine.send(
            [Outgoing("orders", b"x", name.encode(), name, message_group=key)], rig.now_ms
        )
        for _ in range(12):
            rig.send("f", topic="filler", body=FILLER)
    assert len(rig.segments()) > 3
    return rig


@contextmanager
def no_descriptor(rig: EngineRig, *, mapped: int) -> Iterator[None]:
    """Have no other segments mapped than the first `mapped`."""
    assert isinstance(rig.files, BrokenFiles)
    segments = rig.engine.store.log.segments
    for segment in segments:
        segment.unmap()
    for segment in segments[:mapped]:
        segment.view()
    rig.files.broken, rig.files.number = "map", errno.EMFILE
    yield
    rig.files.broken = ""


def receive(rig: EngineRig, *, push: bool, attempt_id: str = "") -> list[Delivered]:
    request = ReceiveRequest(
        "billing", "orders", "client-1", 32, 600_000, auto_renew=push, attempt_id=attempt_id
    )
    return rig.engine.receive(request, rig.now_ms)


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("push", [False, True])
def test_what_cannot_be_read_is_given_back_uncounted(fifo: bool, push: bool) -> None:
    rig = rig_of(fifo=fifo)
    with no_descriptor(rig, mapped=0), pytest.raises(StoreBusyError, match="cannot be mapped"):
        receive(rig, push=push)
    got: list[Delivered] = []
    with no_descriptor(rig, mapped=1):  # in order, all are read before they are lent
        for _ in range(2):
            rig.advance(1)
            with suppress(StoreBusyError):
                got += receive(rig, push=push)
    rig.crash()
    rig.advance(1)
    got += receive(rig, push=push)
    assert [(one.sys, one.attempt) for one in got] == [(b"m1", 1), (b"m2", 1), (b"m3", 1)]
    assert rig.ack(*got) == [True, True, True]


def test_a_reply_that_is_asked_for_again_stays_lent() -> None:
    rig = rig_of(fifo=False)
    first = receive(rig, push=False, attempt_id="a1")
    for mapped in (0, 1):
        with no_descriptor(rig, mapped=mapped), pytest.raises(StoreBusyError):
            receive(rig, push=False, attempt_id="a1")
    again = receive(rig, push=False, attempt_id="a1")
    assert [one.handle for one in again] == [one.handle for one in first]
    assert rig.ack(*first) == [True, True, True]
