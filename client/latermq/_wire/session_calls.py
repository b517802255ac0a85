"""The translator between this package's terms and the protocol's bytes: meeting a broker.

Pure: `ask_*` builds a request, `read_*` takes an answer apart and raises the error its status
stands for. Nothing outside this room sees a protobuf message.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as AnyMessage

from latermq._values.credentials import Headers
from latermq._values.endpoints import AddressScheme, Endpoints
from latermq._values.identity import LANGUAGE, __version__, host_name, request_ids
from latermq._values.route import Queue, Route
from latermq._values.settings import ClientKind, Profile, Settings
from latermq.backoff import DEFAULT_RETRY_POLICY, Exponential, Ladder, RetryPolicy
from latermq.codes import Code
from latermq.errors import ServerError, error_for
from latermq.message import Sql
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from latermq_proto.google.protobuf import duration_pb2, timestamp_pb2

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_PER_DAY: Final = 86_400
SERVICE: Final = "/apache.rocketmq.v2.MessagingService"
QUERY_ROUTE: Final = f"{SERVICE}/QueryRoute"
QUERY_ASSIGNMENT: Final = f"{SERVICE}/QueryAssignment"
TELEMETRY: Final = f"{SERVICE}/Telemetry"
HEARTBEAT: Final = f"{SERVICE}/Heartbeat"
NOTIFY_TERMINATION: Final = f"{SERVICE}/NotifyClientTermination"

SERVICE_HEADER: Final = "x-latermq-service"  # ours: the broker tells who shares a group's topic
OF_ALL_CLIENTS: Final = (  # headers
    ("x-mq-language", LANGUAGE),
    ("x-mq-client-version", f"latermq-{__version__}"),
    ("x-mq-protocol", "v2"),
)

Answer = TypeVar("Answer", bound=AnyMessage)


class Command(Enum):
    """What the broker wants on the telemetry stream, besides settings."""

    RECONNECT = "reconnect"
    UNSUPPORTED = "unsupported"
    NOTHING = "nothing"


class Order(NamedTuple):
    """A command and the nonce its answer must repeat."""

    command: Command
    reply: bytes | None


class Orphan(NamedTuple):
    """The broker asks how a transaction ended."""

    message: bytes  # a v2.Message
    transaction_id: str


class Taken(NamedTuple):
    """Another client of an exclusive group reads this lite topic now."""

    lite_topic: str


TelemetryAnswer: TypeAlias = Settings | Order | Orphan | Taken


def parsed(kind: type[Answer], data: bytes) -> Answer:
    """Return `data` as a message of that kind.

    Raises:
        ServerError: it is not one.
    """
    answer = kind()
    try:
        answer.ParseFromString(data)
    except DecodeError as error:
        message = f"the broker's answer is no {kind.__name__}"
        raise ServerError(Code.INTERNAL_ERROR, message) from error
    return answer


def check(status: v2.Status) -> None:
    """Raise the error that a status other than OK stands for."""
    if int(status.code) != Code.OK:
        raise error_for(int(status.code), status.message)


def resource_of(profile: Profile, name: str) -> v2.Resource:
    return v2.Resource(resource_namespace=profile.namespace, name=name)


def endpoints_of(endpoints: Endpoints) -> v2.Endpoints:
    addresses = [v2.Address(host=host, port=port) for host, port in endpoints.addresses]
    return v2.Endpoints(scheme=int(endpoints.scheme), addresses=addresses)


def read_endpoints(endpoints: v2.Endpoints) -> Endpoints:
    """Return the endpoints that a broker tells, its own or another's."""
    addresses = tuple((address.host, address.port) for address in endpoints.addresses)
    number = int(endpoints.scheme)
    scheme = AddressScheme(number) if number in set(AddressScheme) else AddressScheme.UNSPECIFIED
    return Endpoints(scheme, addresses)


def duration_of(value: timedelta) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromTimedelta(value)
    return duration


def write_timestamp(stamp: timestamp_pb2.Timestamp, value: datetime) -> None:
    since = value - EPOCH  # what FromDatetime does, at a quarter of the cost
    stamp.seconds = since.days * SECONDS_PER_DAY + since.seconds
    stamp.nanos = since.microseconds * 1_000


def instant_of(stamp: timestamp_pb2.Timestamp) -> datetime:
    try:  # a fifth of what `ToDatetime` takes
        return EPOCH + timedelta(0, stamp.seconds, stamp.nanos // 1_000)
    except OverflowError:  # any sender may write any number
        extreme = datetime.max if stamp.seconds > 0 else datetime.min
        return extreme.replace(tzinfo=UTC)


def filter_of(tags: str) -> v2.FilterExpression:
    kind = v2.SQL if isinstance(tags, Sql) else v2.TAG
    return v2.FilterExpression(type=kind, expression=tags)


# Route and assignment ---------------------------------------------------------------------------


def ask_route(profile: Profile, topic: str) -> bytes:
    return rpc.QueryRouteRequest(
        topic=resource_of(profile, topic), endpoints=endpoints_of(profile.access_point)
    ).SerializeToString()


def read_route(data: bytes) -> Route:
    answer = parsed(rpc.QueryRouteResponse, data)
    check(answer.status)
    return Route(tuple(_read_queue(queue) for queue in answer.message_queues))


def ask_assignment(profile: Profile, topic: str) -> bytes:
    return rpc.QueryAssignmentRequest(
        topic=resource_of(profile, topic),
        group=resource_of(profile, profile.group),
        endpoints=endpoints_of(profile.access_point),
    ).SerializeToString()


def read_assignment(data: bytes) -> set[Queue]:
    answer = parsed(rpc.QueryAssignmentResponse, data)
    check(answer.status)
    return {_read_queue(assignment.message_queue) for assignment in answer.assignments}


def _read_queue(queue: v2.MessageQueue) -> Queue:
    return Queue(
        topic=queue.topic.name,
        id=queue.id,
        readable=queue.permission in (v2.READ, v2.READ_WRITE),
        writable=queue.permission in (v2.WRITE, v2.READ_WRITE),
        broker_name=queue.broker.name,
        broker_id=queue.broker.id,
        endpoints=read_endpoints(queue.broker.endpoints),
    )


# Settings, heartbeat, farewell ------------------------------------------------------------------


def settings_command(profile: Profile) -> bytes:
    """Return the first command of a telemetry stream: what this client says about itself."""
    settings = v2.Settings(
        client_type=int(profile.kind),
        access_point=endpoints_of(profile.access_point),
        request_timeout=duration_of(profile.request_timeout),
        user_agent=v2.UA(
            language=v2.PYTHON, version=__version__, platform="Python", hostname=host_name()
        ),
    )
    if profile.kind is ClientKind.PRODUCER:
        topics = [resource_of(profile, topic) for topic in profile.topics]
        settings.publishing.CopyFrom(v2.Publishing(topics=topics))
    else:
        settings.subscription.CopyFrom(
            v2.Subscription(
                group=resource_of(profile, profile.group),
                subscriptions=[
                    v2.SubscriptionEntry(
                        topic=resource_of(profile, topic), expression=filter_of(tags)
                    )
                    for topic, tags in profile.topics.items()
                ],
            )
        )
    return rpc.TelemetryCommand(settings=settings).SerializeToString()


def read_command(data: bytes) -> TelemetryAnswer:
    """Take one command of the broker's apart.

    Raises:
        RequestError: the command is a refusal of our settings.
    """
    command = parsed(rpc.TelemetryCommand, data)
    kind = command.WhichOneof("command")
    if kind == "settings":
        if command.HasField("status"):
            check(command.status)
        return _read_settings(command.settings)
    if kind == "reconnect_endpoints_command":
        return Order(Command.RECONNECT, None)
    if kind == "recover_orphaned_transaction_command":
        orphan = command.recover_orphaned_transaction_command
        return Orphan(orphan.message.SerializeToString(), orphan.transaction_id)
    if kind == "notify_unsubscribe_lite_command":
        return Taken(command.notify_unsubscribe_lite_command.lite_topic)
    unsupported = v2.Status(code=v2.UNSUPPORTED, message="this client does not do that")
    if kind == "print_thread_stack_trace_command":
        trace = rpc.ThreadStackTrace(nonce=command.print_thread_stack_trace_command.nonce)
        reply = rpc.TelemetryCommand(status=unsupported, thread_stack_trace=trace)
        return Order(Command.UNSUPPORTED, reply.SerializeToString())
    if kind == "verify_message_command":
        result = rpc.VerifyMessageResult(nonce=command.verify_message_command.nonce)
        reply = rpc.TelemetryCommand(status=unsupported, verify_message_result=result)
        return Order(Command.UNSUPPORTED, reply.SerializeToString())
    if kind is None and command.HasField("status"):
        check(command.status)
    return Order(Command.NOTHING, None)


def _read_settings(settings: v2.Settings) -> Settings:
    usual = Settings()
    subscription = settings.subscription
    polling = subscription.long_polling_timeout.ToTimedelta()
    return Settings(
        body_bytes_max=settings.publishing.max_body_size or usual.body_bytes_max,
        receive_count_max=subscription.receive_batch_size or usual.receive_count_max,
        long_polling_timeout=polling or usual.long_polling_timeout,
        fifo=subscription.fifo,
        lite_topics_max=subscription.lite_subscription_quota or usual.lite_topics_max,
        retry=_read_retry_policy(settings.backoff_policy),
    )


def _read_retry_policy(policy: v2.RetryPolicy) -> RetryPolicy:
    strategy = policy.WhichOneof("strategy")
    attempts = policy.max_attempts or DEFAULT_RETRY_POLICY.max_attempts
    if strategy == "customized_backoff" and policy.customized_backoff.next:
        waits = tuple(wait.ToTimedelta() for wait in policy.customized_backoff.next)
        return RetryPolicy(attempts, Ladder(waits))
    if strategy == "exponential_backoff":
        growth = policy.exponential_backoff
        return RetryPolicy(
            attempts,
            Exponential(
                initial=growth.initial.ToTimedelta(),
                limit=growth.max.ToTimedelta(),
                multiplier=growth.multiplier,
            ),
        )
    return RetryPolicy(attempts, DEFAULT_RETRY_POLICY.waits)


def ask_heartbeat(profile: Profile) -> bytes:
    request = rpc.HeartbeatRequest(client_type=int(profile.kind))
    if profile.group:
        request.group.CopyFrom(resource_of(profile, profile.group))
    return request.SerializeToString()


def read_heartbeat(data: bytes) -> None:
    check(parsed(rpc.HeartbeatResponse, data).status)


def ask_termination(profile: Profile) -> bytes:
    request = rpc.NotifyClientTerminationRequest()
    if profile.group:
        request.group.CopyFrom(resource_of(profile, profile.group))
    return request.SerializeToString()


def service_headers(profile: Profile) -> Headers:
    """Return what a telemetry stream says beside the client's headers: whose worker it is."""
    if not profile.service:
        return ()
    return ((SERVICE_HEADER, profile.service.encode("ascii", "backslashreplace").decode()),)


class ClientHeaders:
    """The headers every call of a client carries; what does not change is made once."""

    def __init__(self, profile: Profile) -> None:
        self._alike: Headers = (("x-mq-client-id", profile.client_id), *OF_ALL_CLIENTS)
        if profile.namespace:
            self._alike += (("x-mq-namespace", profile.namespace),)
        self._credentials = profile.credentials
        self._request_ids = request_ids()

    def next(self, more: Sequence[tuple[str, str | bytes]]) -> Sequence[tuple[str, str | bytes]]:
        """Return those of another call, with `more` of its own."""
        request_id = ("x-mq-request-id", next(self._request_ids))
        if self._credentials is None:
            return (*self._alike, request_id, *more)
        return (*self._alike, *self._credentials.headers(), request_id, *more)
