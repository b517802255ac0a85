"""The Admin service with clients at telemetry streams, on an engine in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from inspect import isawaitable
from typing import Any, cast

from google.protobuf.message import Message

from latermq_broker.services.call.answers import ADMIN, MESSAGING
from latermq_broker.services.call.handler import BidiStream, Unary
from latermq_proto.apache.rocketmq.v2 import admin_pb2
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from support.fake_call import FakeCall
from support.v1_rig import V1Rig


class AdminClient:
    """The client's side of one telemetry stream; its settings are answered."""

    def __init__(self, rig: "AdminRig", client_id: str) -> None:
        self._sent: asyncio.Queue[TelemetryCommand] = asyncio.Queue()
        call = FakeCall(client_id=client_id, metadata={"x-mq-language": "JAVA"})
        handler = cast(BidiStream, rig.methods[f"{MESSAGING}/Telemetry"].handler)
        self._commands = handler(self._requests(), call)

    async def _requests(self) -> AsyncIterator[bytes]:
        while True:
            yield (await self._sent.get()).SerializeToString()

    async def settle(self, settings: v2.Settings) -> None:
        self.say(TelemetryCommand(settings=settings))
        assert (await self.command()).HasField("settings")

    def say(self, command: TelemetryCommand) -> None:
        self._sent.put_nowait(command)

    async def command(self) -> TelemetryCommand:
        return TelemetryCommand.FromString(await anext(self._commands))

    async def close(self) -> None:
        await cast(Any, self._commands).aclose()


class AdminRig(V1Rig):
    def admin(self, rpc: str, **fields: Any) -> Any:
        """One unary call, to its end."""
        return self.loop.run_until_complete(self.asked(rpc, **fields))

    def asked(self, rpc: str, **fields: Any) -> Awaitable[Any]:
        """The same within the loop."""
        name = {"QueryMessage": "ListMessage"}.get(rpc, rpc)
        request: Message = getattr(admin_pb2, f"{name}Request")(**fields)
        response = getattr(admin_pb2, f"{name}Response")
        handler = cast(Unary, self.methods[f"{ADMIN}/{rpc}"].handler)

        async def answer() -> Any:
            result = handler(request.SerializeToString(), FakeCall(client_id=""))
            return response.FromString(await result if isawaitable(result) else result)

        return answer()

    async def consumer(
        self,
        client_id: str,
        group: str = "billing",
        expression: str = "*",
        kind: v2.ClientType = v2.PUSH_CONSUMER,
    ) -> AdminClient:
        """A connected consumer of topic orders."""
        client = AdminClient(self, client_id)
        entry = v2.SubscriptionEntry(
            topic=v2.Resource(name="orders"),
            expression=v2.FilterExpression(type=v2.TAG, expression=expression),
        )
        settings = v2.Settings(
            client_type=kind,
            subscription=v2.Subscription(group=v2.Resource(name=group), subscriptions=[entry]),
            user_agent=v2.UA(hostname="host-1"),
        )
        await client.settle(settings)
        return client

    async def producer(self, client_id: str) -> AdminClient:
        client = AdminClient(self, client_id)
        await client.settle(v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing()))
        return client


def resource(name: str) -> v2.Resource:
    return v2.Resource(name=name)
