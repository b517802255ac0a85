"""What the loop of `latermq.sync` logs, by handlers that block, raise, or are quick."""

import logging
import os
import threading
from collections.abc import Iterator

import pytest

from latermq._connection import log_aside
from latermq._connection.loop_thread import LoopThread
from support.machine import patient

log = logging.getLogger("latermq.client")
LINES = log_aside.RECORDS_MAX + 300


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.stop()


async def say(text: str, count: int = 1) -> str:
    for number in range(count):
        log.warning("%s %d", text, number)
    return threading.current_thread().name


def test_lines_are_there_when_the_call_returns(
    loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        assert loop.call(say(f"line {number}")) == "latermq"
        assert caplog.messages[-1] == f"line {number} 0"
    assert len(caplog.messages) == 100
    log.warning("of the program")
    assert caplog.records[-1].threadName == "MainThread"
    assert {each.threadName for each in caplog.records[:-1]} == {"latermq"}


def test_a_pipe_that_nobody_reads_stops_no_call() -> None:
    loop = LoopThread()
    reader, writer = os.pipe()
    pipe = os.fdopen(writer, "w")
    handler = logging.StreamHandler(pipe)
    log.addHandler(handler)
    try:
        log.propagate = False  # pytest would show it all
        full = "x" * 1_000
        assert loop.call(say(full, LINES)) == "latermq"  # more than the pipe and the queue take
        text = b""

        def read() -> None:
            nonlocal text
            while b"the last one" not in text:
                text += os.read(reader, 1 << 16)

        reading = threading.Thread(target=read)
        reading.start()
        while b"left out" not in text:
            assert loop.call(say("another")) == "latermq"
        assert loop.call(say("the last one")) == "latermq"
        reading.join(patient(20))
        assert not reading.is_alive()
    finally:
        log.propagate = True
        log.removeHandler(handler)
        loop.stop()
        pipe.close()
        os.close(reader)
    assert text.count(full.encode()) < LINES
    assert b" log lines left out: a log handler took too long" in text


def test_a_handler_that_raises_stops_nothing(
    loop: LoopThread, capsys: pytest.CaptureFixture[str]
) -> None:
    class Bad(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ValueError("no")

    bad = Bad()
    log.addHandler(bad)
    try:
        for _ in range(3):
            assert loop.call(say("line")) == "latermq"
    finally:
        log.removeHandler(bad)
    assert capsys.readouterr().err.count("ValueError: no") == 3


def test_a_closed_loop_leaves_nothing_behind() -> None:
    before = [len(logging.getLogger(name).filters) for name in log_aside.LOGGERS]
    loop = LoopThread()
    loop.call(say("line"))
    loop.stop()
    assert [len(logging.getLogger(name).filters) for name in log_aside.LOGGERS] == before
