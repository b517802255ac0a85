"""grpc.health.v1: serving when ready, not serving while draining.

`""` stands for the whole broker; its services have the same state as it. `latermq.disk` and its
like, one for each `Part`, are serving while that part is in order; the broker serves without.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from latermq_broker.engine.state.conditions import Conditions, Part
from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodTable
from latermq_h2.grpc_code import GrpcCode

HEALTH: Final = "grpc.health.v1.Health"


class HealthService:
    """Begins as not serving.

    Args:
        conditions: what is out of order with the broker.
    """

    def __init__(self, services: Iterable[str], conditions: Conditions) -> None:
        self._known = {"", HEALTH, *services}
        self._parts = {f"latermq.{part.value}": part for part in Part}
        self._conditions = conditions
        self._ill: frozenset[Part] = frozenset()  # as `watch` told last
        self._serving = False
        self._changed = asyncio.Event()  # a new one with each change

    def methods(self) -> MethodTable:
        return {
            f"/{HEALTH}/Check": Method.unary(self.check, small=True),
            f"/{HEALTH}/Watch": Method.server_stream(self.watch, small=True, public=True),
        }

    @property
    def serving(self) -> bool:
        return self._serving

    def set_serving(self, serving: bool) -> None:
        self._serving = serving
        self._tell()

    def on_second(self) -> None:
        """Tell those who watch, if a part went out of order or is in order again."""
        ill = frozenset(self._conditions.troubles)
        if ill != self._ill:
            self._ill = ill
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def check(self, data: bytes, call: Call) -> bytes:
        """Answer whether a service is served.

        Raises:
            CallAborted: NOT_FOUND, a service that is not ours.
        """
        name = _service_of(data)
        if name not in self._known and name not in self._parts:
            raise CallAborted(GrpcCode.NOT_FOUND, f"unknown service {name}")
        return self._answer(name)

    async def watch(self, data: bytes, call: Call) -> AsyncIterator[bytes]:
        """Yield the state now and each change of it.

        Ends when the caller does or draining begins.
        """
        name, answered = _service_of(data), b""
        while True:
            changed = self._changed
            serving = self._serving
            answer = self._answer(name)
            if answer != answered:
                yield answer
            answered = answer
            await changed.wait()
            if serving and not self._serving:
                yield self._answer(name)
                return

    def _answer(self, name: str) -> bytes:
        statuses = health_pb2.HealthCheckResponse
        part = self._parts.get(name)
        if name not in self._known and part is None:
            status = statuses.SERVICE_UNKNOWN
        else:
            well = self._serving and part not in self._conditions.troubles
            status = statuses.SERVING if well else statuses.NOT_SERVING
        answer: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
        return answer


def _service_of(data: bytes) -> str:
    request = health_pb2.HealthCheckRequest()
    try:
        request.ParseFromString(data)
    except DecodeError as error:
        raise CallAborted(GrpcCode.INVALID_ARGUMENT, "not a HealthCheckRequest") from error
    name: str = request.service
    return name
