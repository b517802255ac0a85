"""Assembles all services into one method table.

Every RPC of apache.rocketmq.v2 and latermq.v1 is in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.background.jobs import Background
from latermq_broker.catalog.shares import Shares
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.services.admin.admin_groups import AdminGroups
from latermq_broker.services.admin.admin_messages import AdminMessages
from latermq_broker.services.admin.admin_topics import AdminTopics
from latermq_broker.services.auth.admin_gate import (
    admin_served,
    refuse_admin,
    refuse_users,
    users_served,
)
from latermq_broker.services.auth.guard import Guard
from latermq_broker.services.call.answers import ADMIN, MESSAGING, Caller, reader, refusal_of, unary
from latermq_broker.services.call.handler import Committer, Method, MethodTable, ParkedReceives
from latermq_broker.services.call.transport_view import TransportView
from latermq_broker.services.clients.heartbeat import HeartbeatService
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.reconnects import Reconnects
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.clients.shards import Shards
from latermq_broker.services.clients.telemetry import TelemetryService
from latermq_broker.services.messaging.ack import AckService
from latermq_broker.services.messaging.offsets import OffsetService
from latermq_broker.services.messaging.parking import EveryParking
from latermq_broker.services.messaging.recall import RecallService
from latermq_broker.services.messaging.receive import ReceiveService
from latermq_broker.services.messaging.route import RouteService
from latermq_broker.services.messaging.send import SendService
from latermq_broker.services.messaging.sync_lite import LiteService
from latermq_broker.services.messaging.transaction import TransactionService, anybody
from latermq_broker.services.rpcs import methods_of, path_of
from latermq_broker.services.standard.health import HealthService
from latermq_broker.services.standard.reflection import ReflectionService
from latermq_broker.services.v1.v1_backups import BackupsService
from latermq_broker.services.v1.v1_broker import BrokersService
from latermq_broker.services.v1.v1_clients import ClientsService
from latermq_broker.services.v1.v1_dead_letters import DeadLettersService
from latermq_broker.services.v1.v1_groups import GroupsService
from latermq_broker.services.v1.v1_limits import LimitsService
from latermq_broker.services.v1.v1_messages import MessagesService
from latermq_broker.services.v1.v1_pending import PendingService
from latermq_broker.services.v1.v1_queues import QueuesService
from latermq_broker.services.v1.v1_schedules import SchedulesService
from latermq_broker.services.v1.v1_topics import TopicsService
from latermq_broker.services.v1.v1_users import USERS, UsersService
from latermq_proto.apache.rocketmq.v2 import admin_pb2, service_pb2
from latermq_proto.latermq.v1 import (
    backup_pb2,
    broker_pb2,
    client_pb2,
    dead_letter_pb2,
    group_pb2,
    limit_pb2,
    message_pb2,
    pending_pb2,
    queue_pb2,
    schedule_pb2,
    topic_pb2,
    user_pb2,
)

FILES: Final = (
    service_pb2, admin_pb2, topic_pb2, group_pb2, pending_pb2, dead_letter_pb2, queue_pb2,
    message_pb2,
    broker_pb2, client_pb2, user_pb2, limit_pb2, backup_pb2, schedule_pb2,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The table, and those parts of it that runtime and pump talk to."""

    methods: MethodTable
    parked: ParkedReceives
    transport_view: TransportView
    heartbeat: HeartbeatService
    health: HealthService
    sessions: Sessions
    reconnects: Reconnects
    background: Background
    on_second: Callable[[], None]
    shards: Shards | None
    guard: Guard | None  # None: nobody is asked for a name


def assemble(
    engine: Engine, committer: Committer, config: Config, shards: Shards | None = None
) -> Services:
    """Build every service once; call in a running loop.

    Args:
        shards: the cluster, where the broker is a shard of one.
    """
    descriptors = [*_descriptors(FILES), *_descriptors(shards.files if shards is not None else ())]
    names = [service.full_name for service in descriptors]
    shares = Shares(config.auth)
    sessions = Sessions(config.server, shares, engine.renews_for)
    rooms = Rooms(engine, committer, sessions, config)
    background = Background(config.background)
    subscriptions = LiteSubscriptions(config.lite, shares)
    receive = ReceiveService(rooms, subscriptions)
    lite = LiteService(rooms, subscriptions, receive.serve, receive.outlived)
    offsets = OffsetService(rooms)
    heartbeat = HeartbeatService(engine, committer, sessions, subscriptions)
    guard = _guard(rooms) if config.auth.enabled else None
    transactions = TransactionService(rooms, anybody if guard is None else guard.asking, shards)
    health = HealthService(names, engine.conditions)
    send = SendService(rooms, shards)
    replies = Replies(sessions)
    reconnects = Reconnects(sessions, replies)
    parked = EveryParking((receive.parking, offsets.parking))
    transport_view = TransportView(parked, background)

    def on_second() -> None:
        heartbeat.expire_silent()
        lite.on_second()
        transactions.check_orphans()
        background.on_second(committer.now_ms())
        if shards is not None:
            shards.on_second()

    served: dict[str, tuple[object, ...]] = {
        MESSAGING: (
            RouteService(rooms, shards), TelemetryService(*rooms, replies), heartbeat, send,
            receive, lite, AckService(rooms), transactions, RecallService(rooms, shards), offsets,
        ),
        **_v1(rooms, transport_view, reconnects, subscriptions, shards),
        ADMIN: (
            AdminTopics(rooms),
            AdminGroups(rooms, subscriptions),
            AdminMessages(rooms, send, replies),
        ),
    }  # fmt: skip
    standard = health.methods() | ReflectionService(names).methods()
    methods = _table(served, config, background) | standard
    if shards is not None:
        methods = shards.around(methods, sessions, background)
    methods = methods if guard is None else guard.guarded(methods, descriptors)
    return Services(
        methods=methods,
        parked=parked,
        transport_view=transport_view,
        heartbeat=heartbeat,
        health=health,
        sessions=sessions,
        reconnects=reconnects,
        background=background,
        on_second=on_second,
        shards=shards,
        guard=guard,
    )


def _v1(
    rooms: Rooms,
    transport_view: TransportView,
    reconnects: Reconnects,
    subscriptions: LiteSubscriptions,
    shards: Shards | None,
) -> dict[str, tuple[object, ...]]:
    """List who answers latermq.v1, by service."""
    return {
        "/latermq.v1.Topics": (TopicsService(rooms),),
        "/latermq.v1.Groups": (GroupsService(rooms),),
        "/latermq.v1.Pending": (PendingService(rooms),),
        "/latermq.v1.DeadLetters": (DeadLettersService(rooms),),
        "/latermq.v1.Queues": (QueuesService(rooms),),
        "/latermq.v1.Messages": (MessagesService(rooms),),
        "/latermq.v1.Brokers": (BrokersService(rooms, transport_view, reconnects),),
        "/latermq.v1.Clients": (ClientsService(rooms, subscriptions),),
        USERS: (UsersService(rooms),),
        "/latermq.v1.Limits": (LimitsService(rooms),),
        "/latermq.v1.Backups": (BackupsService(rooms),),
        "/latermq.v1.Schedules": (SchedulesService(rooms, shards),),
    }


def _guard(rooms: Rooms) -> Guard:
    return Guard(
        rooms.engine.users,
        rooms.sessions,
        rooms.config.auth,
        lambda: rooms.engine.wall.at(rooms.committer.now_ms()),
        strict=rooms.config.compat.strict,
    )


def _table(
    served: Mapping[str, Sequence[object]], config: Config, background: Background
) -> MethodTable:
    """Make one table in which every RPC is, and those that are not for everybody are refused."""
    methods: MethodTable = {}
    for descriptor in _descriptors(FILES):
        methods |= methods_of(descriptor, served[f"/{descriptor.full_name}"], background)
        for rpc in descriptor.methods:
            path = path_of(rpc)
            assert path in methods, f"nobody serves {path}"
            if path.startswith(ADMIN) and not admin_served(config):
                methods[path] = _refused(rpc, refuse_admin)
            if path.startswith(USERS) and not users_served(config):
                methods[path] = _refused(rpc, refuse_users)
    return methods


def _refused(rpc: Any, answer: Callable[[Message, Caller], NoReturn]) -> Method:
    refusal = refusal_of(rpc)
    required = rpc.full_name.startswith(MESSAGING[1:])
    return unary(
        reader(GetMessageClass(rpc.input_type)),
        answer,
        lambda status, request: refusal(status),
        client_id_required=required,
    )


def _descriptors(files: Sequence[Any]) -> Iterator[Any]:
    for file in files:
        yield from file.DESCRIPTOR.services_by_name.values()
