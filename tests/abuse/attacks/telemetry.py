"""Settings that are kept, and are more than a client needs to say: number 8."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from abuse.attacks.requests import OTHER_BYTES, TELEMETRY
from abuse.peer import GZIP, Peer, Target, varint, zipped
from abuse.siege import WORKER, Attack, Case
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support import wire_requests

CLIENTS: Final = 60
HOLD_S: Final = 2.0


def publisher() -> definition_pb2.Settings:
    return definition_pb2.Settings(
        client_type=definition_pb2.ClientType.PRODUCER,
        publishing=definition_pb2.Publishing(topics=[wire_requests.resource("kept")]),
    )


def with_unknown_field() -> bytes:
    """Settings with a field that nobody knows, of 4 MiB."""
    kept = publisher().SerializeToString()
    unknown = varint(1_000 << 3 | 2) + varint(OTHER_BYTES - 200)
    settings = kept + unknown + bytes(OTHER_BYTES - 200)
    return b"\x12" + varint(len(settings)) + settings  # TelemetryCommand.settings


def with_many_topics() -> bytes:
    settings = publisher()
    settings.publishing.topics.extend(wire_requests.resource(f"t{n}") for n in range(200_000))
    return service_pb2.TelemetryCommand(settings=settings).SerializeToString()


def with_long_user_agent() -> bytes:
    settings = publisher()
    settings.user_agent.version = "x" * (OTHER_BYTES - 400)
    return service_pb2.TelemetryCommand(settings=settings).SerializeToString()


def with_long_names() -> bytes:
    settings = publisher()
    settings.access_point.addresses.add(host="x" * (OTHER_BYTES // 2), port=1)
    settings.user_agent.hostname = "y" * (OTHER_BYTES // 2 - 400)
    return service_pb2.TelemetryCommand(settings=settings).SerializeToString()


def with_many_subscriptions() -> bytes:
    entries = [
        definition_pb2.SubscriptionEntry(topic=wire_requests.resource(f"t{number}"))
        for number in range(100_000)
    ]
    settings = definition_pb2.Settings(
        client_type=definition_pb2.ClientType.PUSH_CONSUMER,
        subscription=definition_pb2.Subscription(
            group=wire_requests.resource("kept"), subscriptions=entries
        ),
    )
    return service_pb2.TelemetryCommand(settings=settings).SerializeToString()


def clients(command: Callable[[], bytes], *, reads: bool = True) -> Attack:
    """60 client ids on 6 connections say this, compressed."""

    async def attack(target: Target) -> str:
        message = await asyncio.to_thread(lambda: zipped([command()]))
        async with AsyncExitStack() as stack:
            streams = []
            opened = [
                await stack.enter_async_context(await Peer.open(target, grants=reads))
                for _ in range(6)
            ]
            for number in range(CLIENTS):
                peer = opened[number % len(opened)]
                stream_id = peer.call(TELEMETRY, GZIP, client_id=f"kept-{number}@1@0@x")
                streams.append((peer, stream_id))
                await peer.send(stream_id, message)
            await asyncio.sleep(HOLD_S)
            peer, stream_id = streams[0]
            return said_of(peer, stream_id)

    return attack


def said_of(peer: Peer, stream_id: int) -> str:
    answer = peer.answers[stream_id]
    if not answer.message:
        return peer.said
    status = service_pb2.TelemetryCommand.FromString(answer.message).status
    return f"{definition_pb2.Code.Name(status.code)} {status.message[:100]}".strip()


CASES: Final = (
    Case(
        number=8,
        name="unknown-settings",
        what="60 client ids with 4 MiB of unknown fields in their settings, 272 KB on the wire",
        attack=clients(with_unknown_field),
        by=WORKER,
    ),
    Case(
        number=8,
        name="unknown-settings-unread",
        what="the same, and the answers are not read",
        attack=clients(with_unknown_field, reads=False),
        by=WORKER,
        always=False,
    ),
    Case(
        number=8,
        name="settings-topics",
        what="60 client ids that publish to 200,000 topics each",
        attack=clients(with_many_topics),
        by=WORKER,
    ),
    Case(
        number=8,
        name="settings-subscriptions",
        what="60 client ids that subscribe to 100,000 topics each",
        attack=clients(with_many_subscriptions),
        by=WORKER,
        always=False,
    ),
    Case(
        number=8,
        name="settings-user-agent",
        what="60 client ids with a user agent of 4 MiB",
        attack=clients(with_long_user_agent),
        by=WORKER,
    ),
    Case(
        number=8,
        name="settings-addresses",
        what="60 client ids with host names of 2 MiB",
        attack=clients(with_long_names),
        by=WORKER,
        always=False,
    ),
)
