"""Which right each RPC needs on what: one row per RPC, nothing else decides.

A row turns a parsed request into what it wants; the guard asks the caller's grants for each of it.
An RPC without a row is an admin's alone. Dead letters belong
to the group they died in: whoever wants %DLQ%group as a topic needs rights on that group.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from latermq_broker.catalog.access import ALL, Kind, Right, User
from latermq_broker.catalog.catalog import (
    DLQ_PREFIX,
    INTERNAL_PREFIXES,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)
from latermq_broker.engine.state.model import PlainMessages
from latermq_broker.services.call.answers import MESSAGING
from latermq_broker.services.wire.wire_ack import AckRequest
from latermq_text.printable import shortened

PUB, SUB, BROWSE, BODY = Right.PUB, Right.SUB, Right.BROWSE, Right.BODY
REDRIVE, PURGE = Right.REDRIVE, Right.PURGE
V1: Final = "/latermq.v1"


class Want(NamedTuple):
    """One of these rights on this; no right at all is an admin's alone."""

    rights: tuple[Right, ...]
    kind: Kind
    name: str

    def __str__(self) -> str:
        if not self.rights:
            return "to be an admin"
        words = " or ".join(right.value for right in self.rights)
        if self.name == ALL:
            return f"the right {words} on all {self.kind.value}s"
        return f"the right {words} on {self.kind.value} {shortened(self.name)}"


All: TypeAlias = tuple[Want, ...]  # each of them is needed
Wants: TypeAlias = Callable[[Any], All]

ADMIN_ONLY: Final[All] = (Want((), Kind.TOPIC, ALL),)
NOTHING: Final[All] = ()


def topic(name: str, *rights: Right) -> All:
    """Want one of the rights on a topic; on dead letters and retries the like on their group."""
    if not name.startswith(INTERNAL_PREFIXES):
        return (Want(rights, Kind.TOPIC, name),)
    owner = name.removeprefix(DLQ_PREFIX).removeprefix(RETRY_PREFIX)
    if BROWSE in rights:
        return group(owner, BROWSE)
    if SUB in rights:
        return group(owner, BROWSE) + group(owner, BODY)
    if rights in ((BODY,), (PURGE,)):
        return group(owner, *rights)
    return ADMIN_ONLY


def group(name: str, *rights: Right) -> All:
    return (Want(rights, Kind.GROUP, name),)


def every(wants: Iterable[All]) -> All:
    return tuple(chain.from_iterable(wants))


def settings(request: Any) -> All:
    """Want what a client says in v2.Settings that it will do."""
    wants = every(topic(named.name, PUB) for named in request.publishing.topics)
    if request.HasField("subscription"):
        subscription = request.subscription
        if subscription.HasField("group"):
            wants += group(subscription.group.name, SUB)
        wants += every(topic(entry.topic.name, SUB) for entry in subscription.subscriptions)
    return wants


def reading(name: str) -> All:
    """Return the rights, one of which shows a user the bodies of a topic.

    They are asked for wherever a body of the topic leaves the broker by another call than a receive
    or a look: a half message that its producer is asked about, the message of a schedule.
    """
    return topic(name, SUB, BODY)


def letters_of(name: str) -> All:
    """Return the rights that show a user the dead letters of a group with their bodies."""
    return group(name, BROWSE) + group(name, BODY)


def meets(user: User, wants: Iterable[Want]) -> bool:
    """Tell whether a user has all that is wanted."""
    return user.admin or all(
        any(user.may(right, want.kind, want.name) for right in want.rights) for want in wants
    )


def may_move(user: User, group_name: str, origin_topic: str, to_topic: str) -> bool:
    """Tell whether a user with the right `redrive` may have a dead letter sent to a topic.

    Whoever reads that topic reads the letter there. So the letter goes to the topic it came from,
    or anywhere if the user can read the group's letters, or the topic it came from.

    Args:
        origin_topic: "" of a letter that a producer sent to %DLQ%group.
    """
    return (
        origin_topic == to_topic
        or meets(user, letters_of(group_name))
        or (origin_topic != "" and meets(user, reading(origin_topic)))
    )


def _admin(request: Any) -> All:
    return ADMIN_ONLY


def _known(request: Any) -> All:
    """Want nothing: whoever is a user may."""
    return NOTHING


def _send(request: Any) -> All:
    if isinstance(request, PlainMessages):
        return topic(request.topic, PUB)
    messages = request.messages
    if len(messages) == 1:
        return topic(messages[0].topic.name, PUB)
    return every(topic(name, PUB) for name in {message.topic.name for message in messages})


def _topic_pub(request: Any) -> All:
    return topic(request.topic.name, PUB)


def _route(request: Any) -> All:
    return topic(request.topic.name, PUB, SUB)


def _of_both(request: Any) -> All:
    """Want of who settles what it has received by: SUB on the topic and on the group."""
    return topic(request.topic.name, SUB) + group(request.group.name, SUB)


def _ack(request: AckRequest) -> All:
    return topic(request.topic, SUB) + group(request.group, SUB)


def _of_queue(request: Any) -> All:
    return topic(request.message_queue.topic.name, SUB) + group(request.group.name, SUB)


def _query_offset(request: Any) -> All:
    return topic(request.message_queue.topic.name, SUB, BROWSE)


def _of_group(request: Any) -> All:
    """Want SUB on the group, if one is named: producers name none."""
    return group(request.group.name, SUB) if request.group.name else NOTHING


def _change_invisible(request: Any) -> All:
    return group(request.group.name, SUB)


def _get_topic(request: Any) -> All:
    return topic(request.name, PUB, SUB, BROWSE)


def _get_group(request: Any) -> All:
    return group(request.name, SUB, BROWSE)


def _all_topics(request: Any) -> All:
    return topic(ALL, BROWSE)


def _all_groups(request: Any) -> All:
    return group(ALL, BROWSE)


def _everything(*rights: Right) -> All:
    return every(topic(ALL, right) + group(ALL, right) for right in rights)


def _pending(request: Any) -> All:
    name, of_group = request.filter.topic, request.filter.group
    wants = group(of_group, BROWSE) if of_group else NOTHING
    if name.startswith(INTERNAL_PREFIXES) or not of_group:
        wants += topic(ALL if name in ("", SCHEDULE_TOPIC) else name, BROWSE)
    return wants


def _change_pending(request: Any) -> All:
    """Want PURGE on all: an id names neither topic nor group, so it may be of any."""
    return _everything(PURGE)


def _list_letters(request: Any) -> All:
    wants = group(request.group, BROWSE)
    return wants + group(request.group, BODY) if request.include_body else wants


def _get_letter(request: Any) -> All:
    return letters_of(request.group)


def _redrive(request: Any) -> All:
    """Want REDRIVE; for another topic PUB there, and of each letter what `may_move` says."""
    wants = group(request.group, REDRIVE)
    return wants + topic(request.to_topic, PUB) if request.to_topic else wants


def _describe_queues(request: Any) -> All:
    wants = every(topic(name, BROWSE) for name in request.topics)
    return wants + _everything(BROWSE) if request.topic_pattern else wants


def _read_queue(request: Any) -> All:
    wants = topic(request.topic, BROWSE)
    if not request.columns or "body" in request.columns:
        wants += topic(request.topic, BODY)
    return wants


def _find(request: Any) -> All:
    """Want the topic's rights; without a topic the search goes through dead letters too."""
    rights = (BROWSE, BODY) if request.with_body else (BROWSE,)
    if not request.topic:
        return _everything(*rights)
    return every(topic(request.topic, right) for right in rights)


RULES: Final[Mapping[str, Wants]] = {
    f"{MESSAGING}/QueryRoute": _route,
    f"{MESSAGING}/Heartbeat": _of_group,
    f"{MESSAGING}/SendMessage": _send,
    f"{MESSAGING}/QueryAssignment": _of_both,
    f"{MESSAGING}/ReceiveMessage": _of_queue,
    f"{MESSAGING}/AckMessage": _ack,
    f"{MESSAGING}/ForwardMessageToDeadLetterQueue": _of_both,
    f"{MESSAGING}/PullMessage": _of_queue,
    f"{MESSAGING}/UpdateOffset": _of_queue,
    f"{MESSAGING}/GetOffset": _of_queue,
    f"{MESSAGING}/QueryOffset": _query_offset,
    f"{MESSAGING}/EndTransaction": _topic_pub,
    f"{MESSAGING}/Telemetry": settings,
    f"{MESSAGING}/NotifyClientTermination": _of_group,
    f"{MESSAGING}/ChangeInvisibleDuration": _change_invisible,
    f"{MESSAGING}/RecallMessage": _topic_pub,
    f"{MESSAGING}/SyncLiteSubscription": _of_both,
    f"{V1}.Topics/CreateTopic": _admin,
    f"{V1}.Topics/AlterTopic": _admin,
    f"{V1}.Topics/ListTopics": _all_topics,
    f"{V1}.Topics/GetTopic": _get_topic,
    f"{V1}.Topics/DeleteTopic": _admin,
    f"{V1}.Groups/CreateGroup": _admin,
    f"{V1}.Groups/AlterGroup": _admin,
    f"{V1}.Groups/ListGroups": _all_groups,
    f"{V1}.Groups/GetGroup": _get_group,
    f"{V1}.Groups/DeleteGroup": _admin,
    f"{V1}.Groups/ResetGroup": lambda request: group(request.name, PURGE),
    f"{V1}.Groups/ListMessageGroups": lambda request: group(request.group, BROWSE),
    f"{V1}.Groups/ListServices": lambda request: group(request.group, SUB, BROWSE),
    f"{V1}.Pending/ListPending": _pending,
    f"{V1}.Pending/CountPending": _pending,
    f"{V1}.Pending/CancelPending": _change_pending,
    f"{V1}.Pending/CommitPending": _change_pending,
    f"{V1}.Pending/ExpeditePending": _change_pending,
    f"{V1}.Pending/PostponePending": _change_pending,
    f"{V1}.DeadLetters/ListDeadLetters": _list_letters,
    f"{V1}.DeadLetters/GetDeadLetter": _get_letter,
    f"{V1}.DeadLetters/RedriveDeadLetters": _redrive,
    f"{V1}.DeadLetters/DropDeadLetters": lambda request: group(request.group, REDRIVE),
    f"{V1}.Queues/DescribeQueues": _describe_queues,
    f"{V1}.Queues/ReadQueue": _read_queue,
    f"{V1}.Messages/FindMessages": _find,
    f"{V1}.Messages/DescribeMessage": _find,
    f"{V1}.Brokers/GetBroker": _known,
    f"{V1}.Brokers/ReconnectClients": _admin,
    f"{V1}.Brokers/HandOverLog": _admin,
    f"{V1}.Cluster/DescribeCluster": _known,
    f"{V1}.Cluster/CopyCatalogue": _admin,
    f"{V1}.Clients/ListClients": _admin,
    f"{V1}.Clients/GetClient": _admin,
    f"{V1}.Clients/KickClient": _admin,
    f"{V1}.Limits/SetLimit": _admin,
    f"{V1}.Limits/UnsetLimit": _admin,
    f"{V1}.Limits/ListLimits": _known,
    f"{V1}.Backups/BeginBackup": _admin,
    f"{V1}.Backups/KeepBackup": _admin,
    f"{V1}.Backups/ReadLog": _admin,
    f"{V1}.Schedules/PutSchedule": lambda request: topic(request.schedule.topic, PUB),
    f"{V1}.Schedules/GetSchedule": _known,  # by what it sends to: its service looks
    f"{V1}.Schedules/ListSchedules": _known,
    f"{V1}.Schedules/PauseSchedule": _known,
    f"{V1}.Schedules/ResumeSchedule": _known,
    f"{V1}.Schedules/RemoveSchedule": _known,
    f"{V1}.Schedules/RunSchedule": _known,
    f"{V1}.Schedules/DeclareSchedules": _known,
    f"{V1}.Schedules/PruneSchedules": _known,
    f"{V1}.Users/CreateUser": _admin,
    f"{V1}.Users/AlterUser": _admin,
    f"{V1}.Users/GetUser": _admin,
    f"{V1}.Users/ListUsers": _admin,
    f"{V1}.Users/RotateUser": _admin,
    f"{V1}.Users/DeleteUser": _admin,
    f"{V1}.Users/GrantRights": _admin,
    f"{V1}.Users/RevokeRights": _admin,
}


def rule_of(path: str) -> Wants:
    """Find what an RPC wants: what has no row, all of v2.Admin for one, is an admin's alone."""
    return RULES.get(path, _admin)
