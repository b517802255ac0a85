"""Has another shard answer what is its to answer: the caller's bytes and headers, as they came.

A call goes on once. A shard that would send it on again disagrees about homes with the one that
sent it, because one of them has not yet copied the catalogue: it refuses, and nothing is stored.

So the header that says that a call was sent on takes rights away and gives none: whoever is no
shard and writes it is refused what goes on without it. Nothing has to prove who wrote it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, cast

from latermq_broker.cluster.peers import Metadata, PeerError, Peers
from latermq_broker.cluster.shard_headers import FORWARDED, is_forwarded
from latermq_broker.deferred import Later
from latermq_broker.errors import InternalServerError
from latermq_broker.services.call.answers import refusal_of, status_of
from latermq_broker.services.call.handler import Call, Method, MethodKind
from latermq_broker.services.clients.shards import ElsewhereError

TIMEOUT_MS: Final = 3_000  # of a caller without a deadline, or with a later one
MARGIN_MS: Final = 200  # before the caller's deadline: it is to hear why
_CARRIED: Final = ("x-mq-", "x-latermq-", "authorization")

Answer = bytes | Later[bytes] | Awaitable[bytes]


class Forwarding:
    """Sends calls on from shard `own`."""

    def __init__(self, peers: Peers, own: int) -> None:
        self._peers = peers
        self._own = own

    def around(self, method: Method, rpc: Any) -> Method:
        """Give a unary method that has another shard answer where `method` says ElsewhereError."""
        assert method.kind is MethodKind.UNARY
        inner = cast(Callable[..., Answer], method.handler)
        inner_parsed = method.parsed
        assert inner_parsed is not None

        def handler(data: bytes, call: Call) -> Answer:
            try:
                return inner(data, call)
            except ElsewhereError as error:
                return self.answer(error.shard, rpc, data, call)

        def parsed(request: Any, data: bytes, call: Call) -> Answer:
            try:
                answer: Answer = inner_parsed(request, data, call)
            except ElsewhereError as error:
                return self.answer(error.shard, rpc, data, call)
            return answer

        return replace(method, handler=handler, parsed=parsed)

    def always(self, shard: int, method: Method, rpc: Any) -> Method:
        """Give a unary method that another shard answers; one sent on to this shard, nobody."""

        def handler(data: bytes, call: Call) -> Answer:
            if is_forwarded(call):
                return _refused(rpc, f"shard {shard} is to answer this, not shard {self._own}")
            return self.answer(shard, rpc, data, call)

        return replace(method, handler=handler, parsed=lambda _, data, call: handler(data, call))

    async def answer(self, shard: int, rpc: Any, data: bytes, call: Call) -> bytes:
        """Give the other shard's answer, or a status that says that there is none."""
        remaining_ms = call.remaining_ms()
        wait_ms = TIMEOUT_MS if remaining_ms is None else min(remaining_ms - MARGIN_MS, TIMEOUT_MS)
        try:
            return await self._peers.call(
                shard, call.path, data, self._headers(call), max(wait_ms, 1) / 1_000
            )
        except PeerError as error:
            return _refused(rpc, f"another shard is to answer this, and does not: {error}")

    def _headers(self, call: Call) -> Metadata:
        return [*call.all_metadata(_CARRIED), (FORWARDED, str(self._own))]


def _refused(rpc: Any, why: str) -> bytes:
    refused: bytes = refusal_of(rpc)(status_of(InternalServerError(why))).SerializeToString()
    return refused


def rpc_of(files: Any, path: str) -> Any:
    """Find the descriptor of an RPC by its path."""
    service, _, name = path[1:].partition("/")
    for file in files:
        known = file.DESCRIPTOR.services_by_name.get(service.rpartition(".")[2])
        if known is not None and known.full_name == service:
            return known.methods_by_name[name]
    raise AssertionError(f"no RPC {path}")
