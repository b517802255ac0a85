"""What the Admin services share: required fields, and clients as they are told."""

from collections.abc import Iterable
from typing import Any

from latermq_broker.errors import BadRequestError, NotFoundError
from latermq_broker.services.clients.session import Session, Sessions
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import admin_pb2, definition_pb2
from latermq_text.printable import shortened


def named_topic(request: Any) -> str:
    """Find the topic that a request must name. Raises BadRequestError, IllegalTopicError."""
    if not request.topic.name:
        raise BadRequestError("topic is required")
    return wire.topic_name(request.topic)


def named_group(request: Any) -> str:
    """Find the group that a request must name. Raises BadRequestError, IllegalGroupError."""
    if not request.group.name:
        raise BadRequestError("group is required")
    return wire.group_name(request.group)


def known_client(sessions: Sessions, client_id: str, group: str = "") -> Session:
    """Find a client that a request must name.

    Raises:
        BadRequestError: no id.
        NotFoundError: not connected, or of another group.
    """
    if not client_id:
        raise BadRequestError("client_id is required")
    session = sessions.get(client_id)
    if session is None:
        raise NotFoundError(f"client {shortened(client_id)} is not connected")
    if group and session.group != group:
        raise NotFoundError(f"client {client_id} is not one of group {group}")
    return session


def consumers(sessions: Sessions, group: str = "", topic: str = "") -> Iterable[Session]:
    """List the connected clients of a group that subscribe to a topic; by client id."""
    matches = [
        session
        for session in sessions.all()
        if session.consumes and group in ("", session.group)
        if not topic or topic in session.topics
    ]
    return sorted(matches, key=lambda session: session.client_id)


def client_info(session: Session) -> admin_pb2.ClientInfo:
    return admin_pb2.ClientInfo(
        client_id=session.client_id,
        version=session.version,
        language=session.language,
        hostname=session.settings.user_agent.hostname,
        egress_ip=session.peer.rpartition(":")[0].strip("[]"),
        message_model=message_model(session),
    )


def message_model(session: Session) -> admin_pb2.MessageModel:
    return admin_pb2.LITE_SELECTIVE if session.lite else admin_pb2.CLUSTERING


def expression_of(session: Session, topic: str) -> definition_pb2.FilterExpression:
    """Show what the client said it wants of a topic."""
    for entry in session.settings.subscription.subscriptions:
        if entry.topic.name == topic:
            return entry.expression
    return definition_pb2.FilterExpression(type=definition_pb2.TAG, expression="*")
