"""Server reflection over the private descriptor pool, for grpcurl and the like.

The logic is grpcio-reflection's. It is imported with the first call: nobody pays for it at start.
The v1 protocol has the same messages as v1alpha, under another service name; both are served.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodTable
from latermq_broker.services.standard.health import HEALTH
from latermq_h2.grpc_code import GrpcCode
from latermq_proto import _pool

REFLECTION_V1ALPHA: Final = "grpc.reflection.v1alpha.ServerReflection"
REFLECTION_V1: Final = "grpc.reflection.v1.ServerReflection"


class ReflectionService:
    def __init__(self, services: Iterable[str]) -> None:
        self._services = (*services, HEALTH, REFLECTION_V1ALPHA)

    def methods(self) -> MethodTable:
        method = Method.bidi_stream(self.info, small=True, public=True)
        return {
            f"/{REFLECTION_V1ALPHA}/ServerReflectionInfo": method,
            f"/{REFLECTION_V1}/ServerReflectionInfo": method,
        }

    async def info(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        async def parsed() -> AsyncIterator[Any]:
            async for data in requests:
                try:
                    yield reflection_pb2.ServerReflectionRequest.FromString(data)
                except DecodeError as error:
                    text = "not a ServerReflectionRequest"
                    raise CallAborted(GrpcCode.INVALID_ARGUMENT, text) from error

        servicer = reflection.aio.ReflectionServicer(self._services, pool=_FirstOf())
        async for response in servicer.ServerReflectionInfo(parsed(), None):
            yield response.SerializeToString()


class _FirstOf:
    """Our pool, then the default one, where health and reflection themselves are."""

    def __init__(self) -> None:
        from google.protobuf import descriptor_pool

        self._default = descriptor_pool.Default()

    # The names are those of protobuf's DescriptorPool.
    def FindFileByName(self, name: str) -> Any:  # noqa: N802
        return self._first("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        return self._first("FindFileContainingSymbol", symbol)

    def FindMessageTypeByName(self, name: str) -> Any:  # noqa: N802
        return self._first("FindMessageTypeByName", name)

    def FindExtensionByNumber(self, message: Any, number: int) -> Any:  # noqa: N802
        return message.file.pool.FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Any) -> Any:  # noqa: N802
        return message.file.pool.FindAllExtensions(message)

    def _first(self, method: str, name: str) -> Any:
        try:
            return getattr(_pool.POOL, method)(name)
        except KeyError:
            return getattr(self._default, method)(name)
