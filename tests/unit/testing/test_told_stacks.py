"""The stack of a failed attempt begins with the application's own frame, in letter and log."""

import logging
import traceback

import pytest

import latermq
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import dead_letter_pb2


def stack_of(broker: HeldBroker) -> str:
    """Return the stack of the first letter's last attempt."""
    letter = broker.call(
        AsyncAdmin.dead_letters.GetDeadLetter,
        dead_letter_pb2.GetDeadLetterRequest(group="billing", queue_offset=0),
    ).letter
    stack: str = letter.attempts[-1].stack
    return stack


@pytest.mark.parametrize("threads", [False, True], ids=["async", "in-a-thread"])
async def test_a_stack_begins_in_the_listener(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture, threads: bool
) -> None:
    app = latermq.App()

    def charge(order: str) -> None:
        raise ConnectionError(f"no bank for {order}")

    async def awaited(order: str) -> None:
        charge(order)

    def called(order: str) -> None:
        charge(order)

    bill = app.listener("orders", group="billing", max_attempts=1)(called if threads else awaited)
    async with latermq_time.working(app):
        await bill.send("17")
        await latermq_time.settle()
    first, *_ = [line for line in stack_of(latermq_time).splitlines() if "File" in line]
    assert first.endswith(", in called" if threads else ", in awaited")
    (line,) = [each for each in caplog.records if each.exc_info]
    assert line.levelno == logging.WARNING
    assert line.exc_info is not None
    names = [frame.name for frame in traceback.extract_tb(line.exc_info[2])]
    assert names == ["called" if threads else "awaited", "charge"]


async def test_what_fails_before_the_listener_has_its_whole_stack(latermq_time: HeldBroker) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing")
    async def bill(order: int) -> None: ...

    async with latermq_time.working(app), latermq_time.connect() as mq:
        await mq.send("orders", b"many")
        await latermq_time.settle()
    assert len(latermq_time.dead("billing")) == 1
    assert "PayloadError" in stack_of(latermq_time)
