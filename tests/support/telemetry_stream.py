"""One telemetry stream of a client, held open by a test on a rig's loop."""

import asyncio
from collections.abc import AsyncIterator

from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.access_rig import AccessRig
from support.fake_call import FakeCall

TELEMETRY = "/apache.rocketmq.v2.MessagingService/Telemetry"


class TelemetryStream:
    def __init__(self, rig: AccessRig, call: FakeCall) -> None:
        self._rig = rig
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._came: list[service_pb2.TelemetryCommand] = []
        answers = rig.methods[TELEMETRY].handler(self._sent(), call)
        self._pump = rig.loop.create_task(self._take(answers))

    async def _sent(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._requests.get()

    async def _take(self, answers: AsyncIterator[bytes]) -> None:
        async for data in answers:
            self._came.append(service_pb2.TelemetryCommand.FromString(data))

    def settings(self, settings: v2.Settings) -> int:
        """The code that these settings are answered with."""
        command = service_pb2.TelemetryCommand(settings=settings)
        self._requests.put_nowait(command.SerializeToString())
        (answer,) = self.commands()
        return int(answer.status.code)

    def commands(self) -> list[service_pb2.TelemetryCommand]:
        """What the broker has sent since the last call."""
        self._rig.loop.run_until_complete(_turns())
        came, self._came = self._came, []
        return came

    def close(self) -> None:
        self._pump.cancel()
        self._rig.loop.run_until_complete(asyncio.gather(self._pump, return_exceptions=True))


async def _turns() -> None:
    """Enough for all that needs no clock and no socket."""
    for _ in range(20):
        await asyncio.sleep(0)


def producer_of(*topics: str) -> v2.Settings:
    names = [v2.Resource(name=name) for name in topics]
    return v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=names))


def consumer_of(topic: str, group: str, kind: "v2.ClientType" = v2.PUSH_CONSUMER) -> v2.Settings:
    entry = v2.SubscriptionEntry(topic=v2.Resource(name=topic))
    return v2.Settings(
        client_type=kind,
        subscription=v2.Subscription(group=v2.Resource(name=group), subscriptions=[entry]),
    )
