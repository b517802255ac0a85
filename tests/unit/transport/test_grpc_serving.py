"""Calls on connections in memory: what handlers see, what callers get, and that nothing is left."""

import asyncio
import gc
import random
import struct

import pytest

from latermq_broker.services.call.handler import Call, Method
from latermq_h2.hpack.encoder import literal
from latermq_h2.http2 import frames
from support.grpc_served import METHODS, Served, message, unsettled
from support.http2_peer import (
    HELLO,
    OPEN_WINDOWS,
    REQUEST,
    SETTINGS_ACK,
    data,
    headers,
    parse,
)


@pytest.mark.parametrize(
    ("path", "request_bytes", "status", "body"),
    [
        (b"/s/M", message(b"x"), b"0", message(b"x")),
        (b"/s/L", message(b"x"), b"0", message(b"x")),
        (b"/s/C", message(b"x"), b"0", message(b"x")),
        (b"/s/W", message(b"x"), b"0", message(b"x")),
        (b"/s/W", message(b"!"), b"5", b""),
        (b"/s/S", message(b"x"), b"0", message(b"x") * 2),
        (b"/s/B", message(b"x") + message(b"y"), b"0", message(b"xx") + message(b"yy")),
        (b"/s/B", b"", b"0", b""),
        (b"/s/F", message(b"x"), b"5", b""),
        (b"/s/F", message(b""), b"2", b""),
        (b"/s/M", b"", b"12", b""),
        (b"/s/M", message(b"x") * 2, b"12", b""),
        (b"/s/M", message(b"xyz")[:-1], b"13", b""),
        (b"/s/M", struct.pack(">BI", 0, 1 << 21), b"8", b""),
        (b"/s/M", b"\x01" + message(b"x")[1:], b"13", b""),
    ],
)
async def test_one_call_cut_anywhere(
    path: bytes, request_bytes: bytes, status: bytes, body: bytes
) -> None:
    for cut in {0, 1, len(request_bytes) // 2, len(request_bytes)}:
        served = Served()
        wire = data(1, request_bytes[:cut]) + data(1, request_bytes[cut:], end=True)
        fields, found = await served.ask(path, wire)
        assert fields[b"grpc-status"] == status
        assert found == body
        assert b"secret" not in fields.get(b"grpc-message", b"")
        served.check_empty()


async def test_an_answer_that_comes_when_nobody_waits_for_it_any_more() -> None:
    served = Served()
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    served.send(headers(1, block=REQUEST.replace(b"/s/M", b"/s/W")))
    served.send(data(1, message(b""), end=True) + frames.rst_stream(1, frames.ErrorCode.CANCEL))
    await served.settle()
    unsettled[-1].give(b"too late")
    assert not [frame for frame in await served.settle() if frame.stream_id == 1]
    served.check_empty()


def cancellations() -> int:
    """Count the errors of cancelled tasks that somebody holds; tests before this one may."""
    gc.collect()
    return sum(isinstance(one, asyncio.CancelledError) for one in gc.get_objects())


async def test_streams_that_are_given_up_leave_nothing() -> None:
    served, before = Served(), cancellations()
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    for stream_id in range(1, 41, 2):
        opened = headers(stream_id, block=REQUEST.replace(b"/s/M", b"/s/B"))
        served.send(opened + data(stream_id, message(b"x")))
        await served.settle()
        served.send(frames.rst_stream(stream_id, frames.ErrorCode.CANCEL))
        await served.settle()
    served.check_empty()
    assert cancellations() <= before + 1, "each holds the one before it, and its call's frames"


async def test_calls_beyond_the_limit() -> None:
    served = Served(calls_max=2)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    served.send(headers(1) + headers(3) + headers(5))
    answers = await served.settle()
    [refused] = [found for found in answers if found.kind == frames.HEADERS]
    assert refused.stream_id == 5
    assert b"grpc-status\x018" in refused.payload
    served.serving.lost()
    served.check_empty()


async def test_each_call_has_the_timeout_that_it_names() -> None:
    left: list[int | None] = []

    def look(request: bytes, call: Call) -> bytes:
        left.append(call.remaining_ms())
        return request

    served = Served(more={b"/s/T": Method.unary(look)})
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    for number, timeout in enumerate((b"3S", b"2999u", b"", b"0m", b"3s")):
        block = REQUEST.replace(b"/s/M", b"/s/T")
        if timeout:
            block += literal(b"grpc-timeout", timeout)
        stream_id = 2 * number + 1
        served.send(headers(stream_id, block=block) + data(stream_id, message(b"x"), end=True))
    answers = await served.settle()
    assert left == [3_000, 3, None]
    assert served.shared.counts.facts()["refused"] == {
        "deadline exceeded": 1, "malformed grpc-timeout": 1,
    }  # fmt: skip
    refused = {one.stream_id: one.payload for one in answers if one.kind == frames.HEADERS}
    assert b"grpc-status\x014" in refused[7]
    assert b"grpc-status\x0213" in refused[9]
    served.check_empty()


async def test_a_method_with_large_requests_takes_more_than_the_others() -> None:
    large = message(bytes(1_500_000))
    wire = b"".join(
        data(1, large[at : at + 16_000], end=at + 16_000 >= len(large))
        for at in range(0, len(large), 16_000)
    )
    served = Served()
    fields, _ = await served.ask(b"/s/M", wire)
    assert fields[b"grpc-status"] == b"8"
    served.check_empty()
    served = Served()
    fields, body = await served.ask(b"/s/X", wire)
    assert (fields[b"grpc-status"], len(body)) == (b"0", len(large))


async def test_what_was_refused_is_counted() -> None:
    served = Served(calls_max=1)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    served.send(headers(1) + headers(3))
    unknown = REQUEST.replace(b"/s/M", b"/s/?")
    served.send(headers(5, block=unknown) + data(1, b"", end=True))
    await served.settle()
    assert served.shared.counts.facts() == {
        "calls": 1,
        "connections": 0,
        "status": {"UNIMPLEMENTED": 1},
        "refused": {"too many calls at once": 1, "unknown method": 1},
    }


async def test_requests_that_are_never_whole_are_bounded() -> None:
    served = Served(assembly_bytes_max=140_000)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    start = struct.pack(">BI", 0, 1 << 20) + bytes(16_379)
    for number in range(10):
        served.send(headers(2 * number + 1) + data(2 * number + 1, start))
    refused = [found for found in await served.settle() if found.kind == frames.HEADERS]
    assert len(refused) == 4
    assert served.serving.origin.held_bytes <= 140_000
    served.serving.lost()
    served.check_empty()


async def test_work_is_done_in_portions() -> None:
    served = Served(streams_max=1_000)
    served.send(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    call = b"".join(
        headers(2 * n + 1) + data(2 * n + 1, message(b"x"), end=True) for n in range(90)
    )
    served.serving.receive(call)
    assert served.connection.input_left
    assert sum(f.kind == frames.DATA for f in parse(served.connection.take())) == 64
    served.serving.receive(b"")
    assert not served.connection.input_left
    assert sum(f.kind == frames.DATA for f in parse(served.connection.take())) == 26


@pytest.mark.parametrize("cut", range(0, 130, 7))
async def test_input_that_is_kept_is_handled_by_the_next_receive(cut: int) -> None:
    served = Served()
    served.connection.take()
    wire = HELLO + SETTINGS_ACK + headers(1) + data(1, message(b"x"), end=True)
    served.serving.receive(wire[:cut], later=True)
    assert served.connection.input_left == bool(cut)
    assert not served.connection.take()
    assert served.connection.open == {}
    served.serving.receive(wire[cut:], later=True)  # beside what is kept already
    assert not served.connection.take()
    served.serving.receive(b"")
    assert not served.connection.input_left
    assert sum(f.kind == frames.DATA for f in parse(served.connection.take())) == 1
    served.check_empty()


@pytest.mark.parametrize("cut", range(24, 130, 7))
async def test_input_is_kept_behind_a_part_of_a_frame(cut: int) -> None:
    served = Served()
    served.connection.take()
    wire = HELLO + SETTINGS_ACK + headers(1) + data(1, message(b"x"), end=True)
    served.serving.receive(wire[:cut])
    served.serving.receive(wire[cut : cut + 1], later=True)
    served.serving.receive(b"")
    assert not served.connection.input_left
    served.serving.receive(wire[cut + 1 :], later=True)
    served.serving.receive(b"")
    assert sum(f.kind == frames.DATA for f in parse(served.connection.take())) == 1
    served.check_empty()


@pytest.mark.parametrize("seed", range(150))
async def test_whatever_comes_nothing_is_left(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed)
    served = Served()
    wire = bytearray(HELLO + SETTINGS_ACK + OPEN_WINDOWS)
    for number in range(rng.randint(1, 12)):
        stream_id = 2 * number + 1
        block = REQUEST.replace(b"/s/M", rng.choice([*METHODS, b"/s/?"]))
        if rng.random() < 0.3:
            block += literal(b"grpc-timeout", rng.choice([b"1m", b"10S", b"0m"]))
        wire += headers(stream_id, block=block)
        for _ in range(rng.randint(0, 3)):
            body = message(rng.randbytes(rng.choice([0, 10, 5_000])))
            wire += data(stream_id, body[: rng.choice([3, len(body), len(body)])])
        wire += rng.choice([data(stream_id, b"", end=True), frames.rst_stream(stream_id, 8), b""])
    for _ in range(rng.choice([0, 0, 1, 4])):
        at = rng.randrange(len(HELLO), len(wire))
        wire[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
    position = 0
    while position < len(wire):
        step = rng.randint(1, 3_000)
        served.send(bytes(wire[position : position + step]))
        position += step
        if rng.random() < 0.5:
            await asyncio.sleep(0)
            served.connection.take()
    served.serving.lost()
    await served.settle()
    served.check_empty()
