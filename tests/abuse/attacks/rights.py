"""What belongs to another user, and too much of what all share: numbers 11, 12 and 13."""

import asyncio
from collections import Counter
from typing import Any, Final

from abuse.attacks.requests import SEND, TELEMETRY
from abuse.peer import MESSAGING, Caller, Peer, Target, framed
from abuse.siege import OTHER, PUBLISHER, ROOT, WORKER, Case, ask, code_of
from latermq_h2.http2 import frames
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import group_pb2, limit_pb2, topic_pb2, user_pb2
from support import wire_requests

SECRET: Final = b"the body that only its consumers may see"
CHECKED_S: Final = 4.0  # a check is due after `transaction.first_check_ms`, which is 1 s here
ANSWER_S_MAX: Final = 20.0
RECEIVE: Final = f"{MESSAGING}/ReceiveMessage"


def half(topic: str) -> service_pb2.SendMessageRequest:
    message = wire_requests.message(topic, SECRET)
    message.system_properties.message_type = definition_pb2.MessageType.TRANSACTION
    return wire_requests.send([message])


def tell(peer: Peer, stream_id: int, settings: definition_pb2.Settings) -> None:
    command = service_pb2.TelemetryCommand(settings=settings).SerializeToString()
    peer.write(frames.frame(frames.DATA, 0, stream_id, framed(command)))


def publishes(topic: str) -> definition_pb2.Settings:
    return definition_pb2.Settings(
        client_type=definition_pb2.ClientType.PRODUCER,
        publishing=definition_pb2.Publishing(topics=[wire_requests.resource(topic)]),
    )


async def settled(peer: Peer, stream_id: int) -> None:
    """Until the settings were answered."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while not peer.answers[stream_id].message:
            await asyncio.sleep(0.02)


async def half_by_publisher(target: Target) -> str:
    """Be asked about another's transaction."""
    async with await Peer.open(target) as peer, await Peer.open(target.by(WORKER)) as worker:
        stream_id = peer.call(TELEMETRY, client_id="asked@1@0@x")
        tell(peer, stream_id, publishes("paid"))
        await settled(peer, stream_id)
        await ask(worker, SEND, half("paid"))
        await asyncio.sleep(CHECKED_S)
        return "saw the body" if SECRET in peer.answers[stream_id].body else "not asked"


async def half_after_revoking(target: Target) -> str:
    """Be asked about one's own, when the right was taken meanwhile."""
    async with await Peer.open(target) as peer, await Peer.open(target.by(ROOT)) as root:
        stream_id = peer.call(TELEMETRY, client_id="asked@2@0@x")
        tell(peer, stream_id, publishes("unpaid"))
        await settled(peer, stream_id)
        await ask(peer, SEND, half("unpaid"))
        change = user_pb2.ChangeGrantRequest(
            access_key=target.caller.access_key,
            grant=user_pb2.Grant(kind=user_pb2.Grant.TOPIC, pattern="*", rights=["pub"]),
        )
        await ask(root, "/latermq.v1.Users/RevokeRights", change)
        await asyncio.sleep(CHECKED_S)
        seen = SECRET in peer.answers[stream_id].body
        await ask(root, "/latermq.v1.Users/GrantRights", change)
        return "saw the body" if seen else "not asked"


async def foreign_lite_client(target: Target) -> str:
    """Cut the subscriptions of another user's client."""
    async with await Peer.open(target) as peer, await Peer.open(target.by(WORKER)) as worker:
        async with await Peer.open(target.by(ROOT)) as root:
            topic = topic_pb2.CreateTopicRequest(name="parent", type=topic_pb2.LITE)
            await ask(root, "/latermq.v1.Topics/CreateTopic", topic)
            group = group_pb2.Group(name="lites", lite_topics_of="parent")
            await ask(
                root, "/latermq.v1.Groups/CreateGroup", group_pb2.CreateGroupRequest(group=group)
            )
        path = f"{MESSAGING}/SyncLiteSubscription"
        everything = service_pb2.SyncLiteSubscriptionRequest(
            action=definition_pb2.LiteSubscriptionAction.COMPLETE_ADD,
            topic=wire_requests.resource("parent"),
            group=wire_requests.resource("lites"),
            lite_topic_set=["one"],
        )
        await ask(worker, path, everything, client_id="lite@1@0@x")
        del everything.lite_topic_set[:]
        message = await ask(peer, path, everything, client_id="lite@1@0@x")
        return code_of(service_pb2.SyncLiteSubscriptionResponse.FromString(message))


async def foreign_termination(target: Target) -> str:
    """End the leases of a client that has no session."""
    async with await Peer.open(target) as peer, await Peer.open(target.by(WORKER)) as worker:
        message = wire_requests.message("held", b"one")
        await ask(worker, SEND, wire_requests.send([message]))
        receive = wire_requests.receive("held", "holders", auto_renew=True, wait_ms=5_000)
        first = await asked_for(worker, receive, "holder@1@0@x")
        leave = service_pb2.NotifyClientTerminationRequest(group=wire_requests.resource("holders"))
        answer = service_pb2.NotifyClientTerminationResponse.FromString(
            await ask(peer, f"{MESSAGING}/NotifyClientTermination", leave, client_id="holder@1@0@x")
        )
        receive.long_polling_timeout.CopyFrom(wire_requests.duration(5_000))
        again = await asked_for(worker, receive, "second@1@0@x")
        ended = "its lease ended" if message.body in again and message.body in first else "kept"
        return f"{code_of(answer)}, {ended}"


async def asked_for(peer: Peer, request: Any, client_id: str) -> list[bytes]:
    """Bodies of one receive."""
    stream_id = peer.ask(RECEIVE, request, client_id=client_id)
    answer = await peer.answered(stream_id, ANSWER_S_MAX)
    found, body = [], bytes(answer.body)
    while body:
        length = int.from_bytes(body[1:5])
        element = service_pb2.ReceiveMessageResponse.FromString(body[5 : 5 + length])
        if element.HasField("message"):
            found.append(element.message.body)
        body = body[5 + length :]
    return found


async def many_client_ids(target: Target) -> str:
    """Send more than a user may, under an id for each call."""
    key = target.caller.access_key
    limit = limit_pb2.Limit(scope=limit_pb2.Limit.USER, name=key, sends_per_s=20)
    async with await Peer.open(target.by(ROOT)) as root:
        await ask(root, "/latermq.v1.Limits/SetLimit", limit_pb2.SetLimitRequest(limit=limit))
        try:
            async with await Peer.open(target) as peer:
                return await answers_of(peer, [f"id-{n}@1@0@x" for n in range(400)])
        finally:
            gone = limit_pb2.UnsetLimitRequest(scope=limit_pb2.Limit.USER, name=key)
            await ask(root, "/latermq.v1.Limits/UnsetLimit", gone)


async def answers_of(peer: Peer, client_ids: list[str]) -> str:
    """How many sends were refused."""
    streams = [
        peer.ask(
            SEND, wire_requests.send([wire_requests.message("fair", b"x")]), client_id=client_id
        )
        for client_id in client_ids
    ]
    codes: Counter[str] = Counter()
    for stream_id in streams:
        answer = await peer.answered(stream_id, ANSWER_S_MAX)
        codes[code_of(service_pb2.SendMessageResponse.FromString(answer.message))] += 1
    return "some refused" if codes["TOO_MANY_REQUESTS"] > len(streams) // 2 else f"{dict(codes)}"


async def all_sessions(target: Target) -> str:
    """Open as many sessions as there may be, and see whether somebody else gets one."""
    async with await Peer.open(target) as peer, await Peer.open(target.by(WORKER)) as worker:
        streams = [peer.call(TELEMETRY, client_id=f"many-{n}@1@0@x") for n in range(300)]
        for stream_id in streams:
            tell(peer, stream_id, publishes("fair"))
        for stream_id in streams:
            await settled(peer, stream_id)
        mine = worker.call(TELEMETRY, client_id="mine@1@0@x")
        tell(worker, mine, publishes("fair"))
        await settled(worker, mine)
        answer = service_pb2.TelemetryCommand.FromString(worker.answers[mine].message)
        return f"another user: {code_of(answer)}"


async def all_topics(target: Target) -> str:
    """Make as many topics as there may be, and see whether an admin can make one."""
    async with await Peer.open(target) as peer, await Peer.open(target.by(ROOT)) as root:
        for number in range(120):
            request = wire_requests.send([wire_requests.message(f"mine-{number}", b"x")])
            await ask(peer, SEND, request)
        topic = topic_pb2.CreateTopicRequest(name="of-the-admin")
        message = await ask(root, "/latermq.v1.Topics/CreateTopic", topic)
        return f"an admin: {code_of(topic_pb2.TopicResponse.FromString(message))}"


def case(number: int, by: Caller, **fields: Any) -> Case:
    return Case(number=number, by=by, seconds_max=60.0, **fields)


CASES: Final = (
    case(
        11, PUBLISHER,
        name="half-by-publisher",
        what="a user with `pub` alone is asked about another's half message",
        attack=half_by_publisher,
        answers="not asked",
    ),
    case(
        11, PUBLISHER,
        name="half-after-revoking",
        what="a user is asked whose right was revoked",
        attack=half_after_revoking,
        answers="not asked",
    ),
    case(
        12, OTHER,
        name="foreign-lite-client",
        what="SyncLiteSubscription under the client id of another user",
        attack=foreign_lite_client,
        answers="FORBIDDEN",
    ),
    case(
        12, OTHER,
        name="foreign-termination",
        what="NotifyClientTermination for a client of another user",
        attack=foreign_termination,
        answers="FORBIDDEN, kept",
    ),
    case(
        13, PUBLISHER,
        name="many-client-ids",
        what="400 sends under an id each, where a user may send 20 a second",
        attack=many_client_ids,
        answers="some refused",
    ),
    case(
        13, PUBLISHER,
        name="all-sessions",
        what="sessions of 300 client ids, where `server.clients_max` is 200",
        attack=all_sessions,
        answers="another user: OK",
    ),
    case(
        13, PUBLISHER,
        name="all-topics",
        what="120 topics, where `catalog.topic_count_max` is 100",
        attack=all_topics,
        answers="an admin: OK",
    ),
)  # fmt: skip
