"""A broker that answers more than a client has to take; on both transports, and the command."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from latermq._connection.transport import RESPONSE_BYTES_MAX
from latermq._connection.transports import RESPONSE_VARIABLE, chosen, response_bytes_max
from latermq._values.endpoints import Endpoints
from latermq.errors import LaterMQError
from latermq_broker.config.config import ServerConfig
from latermq_broker.services.call.handler import Method, MethodTable
from latermq_broker.transport.lean import LeanServer
from support.machine import patient

PATH: Final = "/latermq.v1.Brokers/GetBroker"
SOON_S: Final = patient(30.0)
MIB: Final = 1 << 20
LATERMQ: Final = Path(sys.executable).with_name("latermq")


@asynccontextmanager
async def answering(bytes_count: int) -> AsyncIterator[str]:
    """A server whose every answer has so many bytes."""
    methods: MethodTable = {PATH: Method.unary(lambda request, call: bytes(bytes_count))}
    server = LeanServer(methods, ServerConfig(listen="127.0.0.1:0"))
    await server.start()
    try:
        yield server.address
    finally:
        await server.drain(0)


@pytest.mark.parametrize("transport", ["lean", "grpcio"])
async def test_an_answer_is_taken_up_to_the_bound(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESPONSE_VARIABLE, str(MIB))
    connect = chosen(transport)
    async with answering(MIB) as address:
        connection = connect(Endpoints.parse(address))
        assert len(await connection.unary(PATH, b"", (), SOON_S)) == MIB
        await connection.close()
    async with answering(MIB + 1) as address:
        connection = connect(Endpoints.parse(address))
        with pytest.raises(LaterMQError, match=rf"{MIB + 1}.*{MIB}"):
            await connection.unary(PATH, b"", (), SOON_S)
        await connection.close()


async def test_the_command_says_what_it_was_sent_and_what_it_takes() -> None:
    environment = os.environ | {RESPONSE_VARIABLE: str(MIB)}
    async with answering(3 * MIB) as address:
        words = [str(LATERMQ), "broker", "show", "--endpoint", address]
        done = await asyncio.to_thread(
            subprocess.run, words, env=environment, capture_output=True, timeout=SOON_S, text=True
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(3 * MIB) in line
    assert str(MIB) in line
    assert "unexpected" not in line


def test_the_bound_is_named_and_can_be_raised() -> None:
    assert response_bytes_max("") == RESPONSE_BYTES_MAX == 64 * MIB
    assert response_bytes_max(str(2**31 - 1)) == 2**31 - 1
    for wrong in ("0", "-1", "x", "1e9", str(2**31), "9" * 100, "٣"):
        with pytest.raises(ValueError, match=RESPONSE_VARIABLE):
            response_bytes_max(wrong)
