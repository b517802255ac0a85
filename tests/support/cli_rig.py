"""The command line on services in the same process: no socket, no broker process.

The SDK's transport is replaced by one that hands each call to the method table.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from latermq._connection.status import error_of
from latermq._connection.transport import Metadata, Stream, Transport
from latermq._connection.transports import chosen
from latermq._values.endpoints import Endpoints
from latermq._values.tls import Tls
from latermq_cli.root import latermq
from latermq_h2.grpc_code import GrpcCode
from support.fake_call import FakeCall
from support.v1_rig import V1Rig


class TableTransport:
    """What `latermq.admin` needs of a transport. The rig runs a loop of its own, in threads."""

    def __init__(self, rig: V1Rig) -> None:
        self._rig = rig
        self.metadata: list[Metadata] = []  # of each call

    async def close(self) -> None:
        """Nothing is open."""

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        if path not in self._rig.methods:
            raise error_of(GrpcCode.UNIMPLEMENTED, "no such method", Endpoints.parse("rig:1"))
        self.metadata.append(metadata)
        return await asyncio.to_thread(self._rig.raw, path, request, _call(path, metadata))

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        call = _call(path, metadata)
        for element in await asyncio.to_thread(self._rig.raw_stream, path, request, call):
            yield element

    def bidi_stream(self, path: str, metadata: Metadata) -> Stream:
        raise NotImplementedError("no command opens one")


def _call(path: str, metadata: Metadata) -> FakeCall:
    texts = {name: value for name, value in metadata if isinstance(value, str)}
    bins = {name: value for name, value in metadata if isinstance(value, bytes)}
    return FakeCall(path=path, metadata=texts, metadata_bin=bins, client_id="")


class CliRig(V1Rig):
    """`run` runs a command line; `ok` and `json` expect it to end well."""

    def __init__(self, patch: pytest.MonkeyPatch, *, columns: int = 200) -> None:
        super().__init__()
        self.transport = TableTransport(self)
        patch.setattr("latermq.admin.chosen", self._chosen)
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TZ", "UTC")
        patch.delenv("LATERMQ_ENDPOINT", raising=False)
        self._runner = CliRunner()

    def _chosen(
        self, name: str | None, tls: bool | Tls, *, waits: bool
    ) -> Callable[[Endpoints], Transport]:
        """TLS is the real one: it finds nobody."""
        return chosen(name, tls, waits=waits) if tls else lambda _: self.transport

    def run(self, *words: str, stdin: str | bytes | None = None) -> Result:
        return self._runner.invoke(latermq, list(words), input=stdin)

    def ok(self, *words: str, stdin: str | bytes | None = None) -> str:
        """The standard output."""
        result = self.run(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str) -> dict[str, Any]:
        """The one JSON object printed with --json."""
        (line,) = self.ok(*words, "--json").splitlines()
        value: dict[str, Any] = json.loads(line)
        return value

    def missing(self, *words: str) -> str:
        """The one line on standard error about what is not there."""
        return self.refused(*words, code=3)

    def refused(self, *words: str, code: int = 2) -> str:
        """The one line on standard error."""
        result = self.run(*words)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        (line,) = result.stderr.splitlines()
        return line
