"""Two tenants in one broker, and every call that one of them can make about either's things.

`shop` has all rights on its own topic and group. Everything else is the neighbour's; each of its
secrets is a text that stands nowhere else, so that an answer which has it tells it.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message_factory import GetMessageClass

from latermq_broker.catalog.access import RIGHTS_OF, Kind, Right
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.engine.state.model import Failure
from latermq_broker.services.call.handler import MethodKind
from latermq_broker.services.registry import FILES
from latermq_proto.latermq.v1 import schedule_pb2
from support.access_rig import ROOT, ROOT_SECRET, AccessRig
from support.fake_call import FakeCall

MINE, MY_GROUP, MY_SCHEDULE = "mine-topic", "mine-group", "mine-tick"
TOPIC, GROUP, SCHEDULE = "vault-topic", "vault-group", "vault-tick"
BODY, TICK_BODY = b"BODY-OF-THE-VAULT", b"BODY-OF-THE-TICK"
PROPERTY, FAILURE = b"PROPERTY-OF-THE-VAULT", b"FAILURE-OF-THE-VAULT"
CLIENT, TENANT, SECRET = "vault-client", "vault-tenant", "SECRET-OF-THE-TENANT"
MINUTE: Final = 60_000
ABSENT: Final = {TOPIC: "vault-topid", GROUP: "vault-groud", SCHEDULE: "vault-ticl"}

NAMES: Final = tuple(map(str.encode, (TOPIC, GROUP, SCHEDULE, CLIENT, TENANT, SECRET, ROOT_SECRET)))
TOLD: Final = (BODY, TICK_BODY, PROPERTY, FAILURE, *NAMES)  # what no answer may have by chance

M: Final = "apache.rocketmq.v2.MessagingService"
RPCS: Final = {
    f"{service.full_name}/{rpc.name}": rpc
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for rpc in service.methods
}
TELEMETRY: Final = f"{M}/Telemetry"

Ask = tuple[str, dict[str, Any]]
Granted = tuple[Kind, str, Right]


class RightsWorld(AccessRig):
    """What there is when the other tenant has worked for a while."""

    def __init__(self) -> None:
        super().__init__()
        for topic, group in ((MINE, MY_GROUP), (TOPIC, GROUP)):
            self.make_group(group, attempts=1)
            self.send_message("first", topic=topic, body=self._body(topic), keys=["the-key"])
        for kind, name in ((Kind.TOPIC, MINE), (Kind.GROUP, MY_GROUP)):
            self.grant(kind, name, *RIGHTS_OF[kind])
        failure = Failure("VaultError", FAILURE.decode(), "", "at vault.py:1")
        properties = {"secret": PROPERTY.decode()}
        for number in range(2):  # dead letters
            self.send_message(
                f"dead-{number}", topic=TOPIC, body=BODY, keys=["the-key"], properties=properties
            )
        for delivered in self.receive(GROUP, topic=TOPIC, client=CLIENT):
            self.engine.change_invisible(GROUP, delivered.handle, 0, self.now_ms, failure=failure)
        for number in range(2):  # one in hand, one in line
            self.send_message(f"more-{number}", topic=TOPIC, body=BODY, properties=properties)
        self.receive(GROUP, topic=TOPIC, count=1, lease_ms=10 * MINUTE, client=CLIENT)
        self.send_message("later", topic=TOPIC, body=BODY, wait_ms=MINUTE)
        self.send_half("half", topic=TOPIC)
        self.engine.users.create(TENANT, SECRET, admin=False, now_ms=self.now_ms)
        for limit in (
            Limit(scope=Scope.USER, name=TENANT, sends_per_s=10),
            Limit(scope=Scope.GROUP, name=GROUP, in_flight=10),
            Limit(scope=Scope.CLIENT, name=CLIENT, parked_polls=10),
        ):
            self.engine.limits.set(limit, self.now_ms)
        for name, topic in ((MY_SCHEDULE, MINE), (SCHEDULE, TOPIC)):
            asked = schedule_pb2.Schedule(
                name=name, topic=topic, every_ms=MINUTE, body=self._body(topic, TICK_BODY)
            )
            request = schedule_pb2.PutScheduleRequest(schedule=asked)
            path = "latermq.v1.Schedules/PutSchedule"
            self.code_of(
                f"/{path}", request, schedule_pb2.PutScheduleResponse, self.by(ROOT, ROOT_SECRET)
            )
        self.advance(0)

    @staticmethod
    def _body(topic: str, body: bytes = BODY) -> bytes:
        return body if topic == TOPIC else b"my own"

    def ask(self, path: str, fields: dict[str, Any]) -> list[Any]:
        """Make a call as `shop`; its answers, parsed."""
        rpc = RPCS[path]
        data = GetMessageClass(rpc.input_type)(**fields).SerializeToString()
        signer = self.by()
        call = FakeCall(metadata=signer._metadata, remaining_ms=1, path=f"/{path}")
        if self.methods[f"/{path}"].kind is MethodKind.UNARY:
            answers = [self.raw(f"/{path}", data, call)]
        else:
            answers = self.raw_stream(f"/{path}", data, call)
        return [GetMessageClass(rpc.output_type).FromString(answer) for answer in answers]


def told_by(path: str, fields: dict[str, Any], answers: list[Any]) -> set[bytes]:
    """Return the neighbour's texts that the answers have and the request did not."""
    request = GetMessageClass(RPCS[path].input_type)(**fields).SerializeToString()
    said = b"".join(answer.SerializeToString() for answer in answers)
    return {text for text in TOLD if text in said and text not in request}


def handles(answers: list[Any]) -> Iterator[str]:
    """Yield receipt handles of received messages: the next calls settle by them."""
    for answer in answers:
        if answer.DESCRIPTOR.name == "ReceiveMessageResponse" and answer.HasField("message"):
            yield answer.message.system_properties.receipt_handle


def about_topic(topic: str) -> Iterator[Ask]:
    named, queue = {"name": topic}, {"message_queue": {"topic": {"name": topic}}}
    message = {
        "topic": named,
        "body": b"mine",
        "system_properties": {"message_id": "0123456789", "born_host": "me"},
    }
    schedule = {"name": MY_SCHEDULE, "topic": topic, "every_ms": MINUTE, "body": b"mine"}
    yield f"{M}/QueryRoute", {"topic": named}
    yield f"{M}/SendMessage", {"messages": [message]}
    yield f"{M}/QueryOffset", queue
    yield f"{M}/EndTransaction", {"topic": named, "message_id": "half", "transaction_id": "half"}
    yield f"{M}/RecallMessage", {"topic": named, "recall_handle": "later"}
    yield "latermq.v1.Topics/GetTopic", {"name": topic}
    yield "latermq.v1.Pending/ListPending", {"filter": {"topic": topic}}
    yield "latermq.v1.Pending/CountPending", {"filter": {"topic": topic}}
    yield "latermq.v1.Pending/CountPending", {"filter": {"topic": topic, "due_before_ms": 1 << 50}}
    yield "latermq.v1.Queues/DescribeQueues", {"topics": [topic], "lives": True}
    yield "latermq.v1.Queues/ReadQueue", {"topic": topic, "end_offset": 100}
    yield "latermq.v1.Queues/ReadQueue", {"topic": topic, "end_offset": 100, "columns": ["tag"]}
    for body in (True, False):
        for how in ({"message_id": "dead-0"}, {"key": "the-key"}, {"begin_ms": 1}):
            asked = {"topic": topic, "with_body": body, **how}
            yield "latermq.v1.Messages/FindMessages", asked
        asked = {"topic": topic, "with_body": body, "message_id": "dead-1"}
        yield "latermq.v1.Messages/DescribeMessage", asked
    for keep in (True, False):
        yield "latermq.v1.Schedules/PutSchedule", {"schedule": schedule, "keep": keep}
        taken = {**schedule, "name": SCHEDULE}
        yield "latermq.v1.Schedules/PutSchedule", {"schedule": taken, "keep": keep}


def about_group(group: str) -> Iterator[Ask]:
    named = {"group": {"name": group}}
    yield f"{M}/Heartbeat", named
    yield f"{M}/NotifyClientTermination", named
    yield "latermq.v1.Groups/GetGroup", {"name": group}
    yield "latermq.v1.Groups/ListMessageGroups", {"group": group}
    yield "latermq.v1.Groups/ListServices", {"group": group}
    yield "latermq.v1.Pending/ListPending", {"filter": {"group": group}}
    yield "latermq.v1.Pending/CountPending", {"filter": {"group": group}}
    for body in (True, False):
        asked = {"group": group, "include_body": body}
        yield "latermq.v1.DeadLetters/ListDeadLetters", asked
    yield "latermq.v1.DeadLetters/GetDeadLetter", {"group": group, "queue_offset": 0}
    yield "latermq.v1.DeadLetters/RedriveDeadLetters", {"group": group, "dry_run": True}
    yield "latermq.v1.DeadLetters/RedriveDeadLetters", {"group": group, "max_count": 1}


def about_both(topic: str, group: str) -> Iterator[Ask]:
    names = {"topic": {"name": topic}, "group": {"name": group}}
    queue = {"message_queue": {"topic": {"name": topic}, "id": 0}}
    asked = {**queue, "group": {"name": group}}
    receive = {
        **asked,
        "batch_size": 8,
        "invisible_duration": {"seconds": 10},
        "filter_expression": {"type": 1, "expression": "*"},
    }
    yield f"{M}/QueryAssignment", {**names, "endpoints": {"scheme": 1}}
    yield f"{M}/ReceiveMessage", receive
    yield f"{M}/PullMessage", {**asked, "batch_size": 8}
    yield f"{M}/GetOffset", asked
    yield f"{M}/UpdateOffset", {**asked, "offset": 0}
    yield f"{M}/SyncLiteSubscription", names
    yield "latermq.v1.Groups/ResetGroup", {"name": group, "topic": topic}
    yield "latermq.v1.Groups/ListMessageGroups", {"group": group, "topic": topic}
    yield "latermq.v1.Pending/ListPending", {"filter": {"topic": topic, "group": group}}
    yield "latermq.v1.Pending/CountPending", {"filter": {"topic": topic, "group": group}}
    redrive = {"group": group, "to_topic": topic}
    yield "latermq.v1.DeadLetters/RedriveDeadLetters", redrive
    yield "latermq.v1.DeadLetters/RedriveDeadLetters", {**redrive, "dry_run": True}


def about_schedule(name: str) -> Iterator[Ask]:
    for verb in ("Get", "Pause", "Resume", "Run"):
        yield f"latermq.v1.Schedules/{verb}Schedule", {"name": name}


def about_all() -> Iterator[Ask]:
    yield "latermq.v1.Topics/ListTopics", {"include_internal": True}
    yield "latermq.v1.Groups/ListGroups", {}
    yield "latermq.v1.Groups/ListGroups", {"names": [GROUP]}
    yield "latermq.v1.Pending/ListPending", {}
    yield "latermq.v1.Pending/CountPending", {}
    yield "latermq.v1.Queues/DescribeQueues", {"topic_pattern": ".*"}
    for body in (True, False):
        asked = {"message_id": "dead-0", "with_body": body}
        yield "latermq.v1.Messages/FindMessages", asked
        yield "latermq.v1.Messages/DescribeMessage", asked
    for verb in ("Cancel", "Commit", "Expedite", "Postpone"):
        yield f"latermq.v1.Pending/{verb}Pending", {"ids": ["none"]}
    yield "latermq.v1.Schedules/ListSchedules", {}
    yield "latermq.v1.Schedules/DeclareSchedules", {"app": "a", "worker": "w", "names": [SCHEDULE]}
    yield "latermq.v1.Schedules/PruneSchedules", {"dry_run": True}
    yield "latermq.v1.Brokers/GetBroker", {}
    yield "latermq.v1.Limits/ListLimits", {}
    for path in ADMINS:
        yield path, {}


def everything() -> list[Ask]:
    """List the calls: about each tenant's things, about both's together, and about all."""
    asks: list[Ask] = [*about_all()]
    topics, groups = (MINE, TOPIC), (MY_GROUP, GROUP)
    for topic in (*topics, *(f"%DLQ%{group}" for group in groups)):
        asks += about_topic(topic)
        for group in groups:
            asks += about_both(topic, group)
    for group in groups:
        asks += about_group(group)
    for name in (MY_SCHEDULE, SCHEDULE):
        asks += about_schedule(name)
    return asks


SETTLING: Final = {
    f"{M}/AckMessage", f"{M}/ForwardMessageToDeadLetterQueue", f"{M}/ChangeInvisibleDuration",
}  # fmt: skip
REMOVING: Final = {
    "latermq.v1.Schedules/RemoveSchedule", "latermq.v1.DeadLetters/DropDeadLetters",
}  # fmt: skip
ADMINS: Final = sorted(
    path
    for path in RPCS
    if path.startswith(("apache.rocketmq.v2.Admin/", "latermq.v1.Users/", "latermq.v1.Backups/"))
    or path.startswith("latermq.v1.Clients/")
    or path.rpartition("/")[2]
    in ("CreateTopic", "AlterTopic", "DeleteTopic", "CreateGroup", "AlterGroup", "DeleteGroup",
        "ReconnectClients", "HandOverLog", "SetLimit", "UnsetLimit")
)  # fmt: skip
