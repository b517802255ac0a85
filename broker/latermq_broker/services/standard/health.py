"""grpc.health.v1: serving when ready, not serving while draining.

`""` stands for the whole broker; its services have the same state as it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodTable
from latermq_h2.grpc_code import GrpcCode

HEALTH: Final = "grpc.health.v1.Health"


class HealthService:
    """Begins as not serving."""

    def __init__(self, services: Iterable[str]) -> None:
        self._known = {"", HEALTH, *services}
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
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def check(self, data: bytes, call: Call) -> bytes:
        """Answer whether a service is served.

        Raises:
            CallAborted: NOT_FOUND, a service that is not ours.
        """
        name = _service_of(data)
        if name not in self._known:
            raise CallAborted(GrpcCode.NOT_FOUND, f"unknown service {name}")
        return self._answer(name)

    async def watch(self, data: bytes, call: Call) -> AsyncIterator[bytes]:
        """Yield the state now and each change of it.

        Ends when the caller does or draining begins.
        """
        name = _service_of(data)
        while True:
            changed = self._changed
            serving = self._serving
            yield self._answer(name)
            await changed.wait()
            if serving and not self._serving:
                yield self._answer(name)
                return

    def _answer(self, name: str) -> bytes:
        statuses = health_pb2.HealthCheckResponse
        if name not in self._known:
            status = statuses.SERVICE_UNKNOWN
        else:
            status = statuses.SERVING if self._serving else statuses.NOT_SERVING
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
