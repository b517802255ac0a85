"""Lines of a log whose reader stands still: nothing waits, and what was left out is told."""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from latermq_text.log_writer import BesideHandler, LogWriter
from support.machine import patient

LINE = b"x" * 99 + b"\n"
F_SETPIPE_SZ = 1031


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe of a page: (what is read from, what is written to)."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    yield reader, writer
    os.close(reader)


def drained(reader: int, writer: LogWriter) -> bytes:
    """Read all there is until the writer has written all."""
    found = bytearray()
    thread = threading.Thread(target=lambda: found.extend(iter_all(reader)))
    thread.start()
    assert writer.flush(patient(10))
    os.close(writer.descriptor)
    thread.join()
    return bytes(found)


def iter_all(reader: int) -> bytes:
    data = b""
    while piece := os.read(reader, 4096):
        data += piece
    return data


def test_lines_keep_their_order(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1])
    lines = [b"%d\n" % n for n in range(5_000)]
    assert all(map(writer.write, lines))
    assert drained(pipe[0], writer) == b"".join(lines)


def test_a_full_pipe_stops_nobody_and_what_finds_no_room_is_counted(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], bytes_max=10_000)
    taken = sum(writer.write(LINE) for _ in range(1_000))
    assert 100 <= taken <= 150  # what may wait, and what the pipe holds
    assert writer.left_out == 1_000 - taken
    assert writer.take_untold() == 0, "not before there is room"
    assert not writer.flush(0.01)
    found = drained(pipe[0], writer)
    assert found == LINE * taken
    assert writer.take_untold() == 1_000 - taken
    assert writer.take_untold() == 0


def test_a_handler_tells_what_was_left_out_where_it_is_missing(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], bytes_max=2_000)
    handler = BesideHandler(writer)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.Logger("of.a.test")
    logger.addHandler(handler)
    for n in range(200):
        logger.warning("line %d %s", n, "y" * 80)
    left_out = writer.left_out
    assert left_out
    while writer._waiting_bytes > 1_000:
        os.read(pipe[0], 4096)
    logger.warning("after")
    text = drained(pipe[0], writer).decode()
    assert text.endswith("WARNING log lines were left out: nobody took them\nWARNING after\n")
    assert writer.left_out == left_out


def test_a_reader_that_is_gone_costs_the_line_and_nothing_else(pipe: tuple[int, int]) -> None:
    reader, descriptor = os.pipe()
    os.close(reader)
    writer = LogWriter(descriptor)
    assert writer.write(LINE)
    assert writer.flush(patient(10))
    assert writer.left_out == 1
    os.close(descriptor)


def test_a_descriptor_that_does_not_block_is_tried_again(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = LogWriter(pipe[1])
    for _ in range(100):
        writer.write(LINE)
    assert drained(pipe[0], writer) == LINE * 100
