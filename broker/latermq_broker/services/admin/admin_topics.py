"""Admin RPCs about topics and the broker itself. Protocol: admin.proto."""

import json
import logging
from typing import Final

from latermq_broker.engine.state.model import TopicType
from latermq_broker.errors import BadRequestError
from latermq_broker.services.admin.admin_fields import named_topic
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.clients.rooms import Rooms
from latermq_proto.apache.rocketmq.v2 import admin_pb2, definition_pb2
from latermq_text.version import own_version

log = logging.getLogger("latermq.services")

_TYPES: Final = {
    TopicType.NORMAL: definition_pb2.NORMAL,
    TopicType.FIFO: definition_pb2.FIFO,
    TopicType.DELAY: definition_pb2.DELAY,
    TopicType.TRANSACTION: definition_pb2.TRANSACTION,
    TopicType.LITE: definition_pb2.LITE,
    TopicType.PRIORITY: definition_pb2.PRIORITY,
    TopicType.MIXED: definition_pb2.MESSAGE_TYPE_UNSPECIFIED,
}
_LEVELS: Final = {
    admin_pb2.ChangeLogLevelRequest.TRACE: logging.DEBUG,  # there is nothing below
    admin_pb2.ChangeLogLevelRequest.DEBUG: logging.DEBUG,
    admin_pb2.ChangeLogLevelRequest.INFO: logging.INFO,
    admin_pb2.ChangeLogLevelRequest.WARN: logging.WARNING,
    admin_pb2.ChangeLogLevelRequest.ERROR: logging.ERROR,
}
_READ_WRITE: Final = 6
_MASTER: Final = "0"


class AdminTopics:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._sessions = rooms.sessions
        self._config = rooms.config

    def change_log_level(
        self, request: admin_pb2.ChangeLogLevelRequest, _: Caller
    ) -> admin_pb2.ChangeLogLevelResponse:
        """Set the log's level until the broker's end. Raises BadRequestError: an unknown level."""
        level = _LEVELS.get(request.level)
        if level is None:
            raise BadRequestError(f"log level {int(request.level)} is unknown")
        logging.getLogger("latermq").setLevel(level)
        name = logging.getLevelName(level).lower()
        log.warning("log level changed", extra={"level": name})
        return admin_pb2.ChangeLogLevelResponse(remark=f"the log level is {name}")

    def describe_topic_status(
        self, request: admin_pb2.DescribeTopicStatusRequest, _: Caller
    ) -> admin_pb2.DescribeTopicStatusResponse:
        """Describe a topic's queues.

        Raises BadRequestError, IllegalTopicError, TopicNotFoundError.
        """
        topic = self._engine.catalog.require_topic(named_topic(request))
        info = self._engine.topics.describe(topic.name)
        response = admin_pb2.DescribeTopicStatusResponse(
            status=ok_status(),
            topic_message_type=_TYPES[topic.type],
            description=(
                f"{topic.queue_count} queues, {info.message_count} messages, "
                f"{info.delayed_count} delayed, {len(info.groups)} groups"
            ),
        )
        response.create_timestamp.FromMilliseconds(topic.created_ms)
        return response

    def get_topic_route(
        self, request: admin_pb2.GetTopicRouteRequest, caller: Caller
    ) -> admin_pb2.GetTopicRouteResponse:
        """Tell where a topic is served.

        Raises BadRequestError, IllegalTopicError, TopicNotFoundError.
        """
        topic = self._engine.catalog.require_topic(named_topic(request))
        name = self._config.server.broker_name
        queues = {
            "brokerName": name,
            "readQueueNums": topic.queue_count,
            "writeQueueNums": topic.queue_count,
            "perm": _READ_WRITE,
            "topicSysFlag": 0,
        }
        broker = {
            "cluster": name,
            "brokerName": name,
            "brokerAddrs": {_MASTER: caller.call.local},
        }
        data = {"topic": topic.name, "queueDatas": [queues], "brokerDatas": [broker]}
        return admin_pb2.GetTopicRouteResponse(
            status=ok_status(), topic_route_data=json.dumps(data)
        )

    def get_proxy_runtime_stats(
        self, request: admin_pb2.GetProxyRuntimeStatsRequest, _: Caller
    ) -> admin_pb2.GetProxyRuntimeStatsResponse:
        """Count what there is now; the rates are not kept."""
        sessions = list(self._sessions.all())
        consuming = sum(session.consumes for session in sessions)
        return admin_pb2.GetProxyRuntimeStatsResponse(
            status=ok_status(),
            proxy_name=self._config.server.broker_name,
            version=own_version(),
            connections=sum(bool(session.streams) for session in sessions),
            producers=len(sessions) - consuming,
            consumers=consuming,
        )
