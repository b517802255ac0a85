"""The command line on services in the same process: no socket, no broker process.

gRPC's channel is replaced by one that hands each call to the method table.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from latermq_cli.root import latermq
from support.fake_call import FakeCall
from support.v1_rig import V1Rig


class TableChannel:
    """What a generated stub needs of a grpc.Channel."""

    def __init__(self, rig: V1Rig) -> None:
        self._rig = rig

    def close(self) -> None:
        """Nothing is open."""

    def unary_unary(
        self, path: str, serialize: Any = None, deserialize: Any = None, **names: Any
    ) -> Callable[..., Any]:
        serialize = serialize or names["request_serializer"]
        deserialize = deserialize or names["response_deserializer"]

        def call(request: Any, *, timeout: float, metadata: Any) -> Any:
            return deserialize(self._rig.raw(path, serialize(request), _call(path, metadata)))

        return call

    def unary_stream(
        self, path: str, serialize: Any = None, deserialize: Any = None, **names: Any
    ) -> Callable[..., Any]:
        serialize = serialize or names["request_serializer"]
        deserialize = deserialize or names["response_deserializer"]

        def call(request: Any, *, timeout: float | None, metadata: Any) -> Iterator[Any]:
            data = self._rig.raw_stream(path, serialize(request), _call(path, metadata))
            return map(deserialize, data)

        return call

    def stream_stream(self, path: str, *_: Any, **names: Any) -> None:
        """No command opens one."""


def _call(path: str, metadata: Any) -> FakeCall:
    texts: Mapping[str, str] = {name: value for name, value in metadata if name[-4:] != "-bin"}
    bins: Mapping[str, bytes] = {name: value for name, value in metadata if name[-4:] == "-bin"}
    return FakeCall(path=path, metadata=texts, metadata_bin=bins, client_id="")


class CliRig(V1Rig):
    """`run` runs a command line; `ok` and `json` expect it to end well."""

    def __init__(self, patch: pytest.MonkeyPatch, *, columns: int = 160) -> None:
        super().__init__()
        patch.setattr(grpc, "insecure_channel", lambda *_, **__: TableChannel(self))
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TZ", "UTC")
        patch.delenv("LATERMQ_ENDPOINT", raising=False)
        self._runner = CliRunner()

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

    def refused(self, *words: str, code: int = 2) -> str:
        """The one line on standard error."""
        result = self.run(*words)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        (line,) = result.stderr.splitlines()
        return line
