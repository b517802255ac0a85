from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_TYPE_UNSPECIFIED: _ClassVar[TopicType]
    NORMAL: _ClassVar[TopicType]
    FIFO: _ClassVar[TopicType]
    DELAY: _ClassVar[TopicType]
    TRANSACTION: _ClassVar[TopicType]
    LITE: _ClassVar[TopicType]
    PRIORITY: _ClassVar[TopicType]
    MIXED: _ClassVar[TopicType]
TOPIC_TYPE_UNSPECIFIED: TopicType
NORMAL: TopicType
FIFO: TopicType
DELAY: TopicType
TRANSACTION: TopicType
LITE: TopicType
PRIORITY: TopicType
MIXED: TopicType

class QueueRange(_message.Message):
    __slots__ = ("queue_id", "earliest_offset", "next_offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    earliest_offset: int
    next_offset: int
    def __init__(self, queue_id: _Optional[int] = ..., earliest_offset: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "type", "queue_count", "created_at_ms", "epoch", "internal", "queues", "message_count", "delayed_count", "consumer_groups", "retention_ms", "unread_retention_ms", "kept_ms", "unread_kept_ms", "oldest_at_ms", "dedup_window_ms", "dedup_kept_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    KEPT_MS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_KEPT_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEPT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: TopicType
    queue_count: int
    created_at_ms: int
    epoch: str
    internal: bool
    queues: _containers.RepeatedCompositeFieldContainer[QueueRange]
    message_count: int
    delayed_count: int
    consumer_groups: _containers.RepeatedScalarFieldContainer[str]
    retention_ms: int
    unread_retention_ms: int
    kept_ms: int
    unread_kept_ms: int
    oldest_at_ms: int
    dedup_window_ms: int
    dedup_kept_ms: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[TopicType, str, int]] = ..., queue_count: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., epoch: _Optional[str] = ..., internal: bool = ..., queues: _Optional[_Iterable[_Union[QueueRange, _Mapping]]] = ..., message_count: _Optional[int] = ..., delayed_count: _Optional[int] = ..., consumer_groups: _Optional[_Iterable[str]] = ..., retention_ms: _Optional[int] = ..., unread_retention_ms: _Optional[int] = ..., kept_ms: _Optional[int] = ..., unread_kept_ms: _Optional[int] = ..., oldest_at_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ..., dedup_kept_ms: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "type", "queue_count", "retention_ms", "unread_retention_ms", "dedup_window_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: TopicType
    queue_count: int
    retention_ms: int
    unread_retention_ms: int
    dedup_window_ms: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[TopicType, str, int]] = ..., queue_count: _Optional[int] = ..., retention_ms: _Optional[int] = ..., unread_retention_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "type", "queue_count", "retention_ms", "unread_retention_ms", "dedup_window_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: TopicType
    queue_count: int
    retention_ms: int
    unread_retention_ms: int
    dedup_window_ms: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[TopicType, str, int]] = ..., queue_count: _Optional[int] = ..., retention_ms: _Optional[int] = ..., unread_retention_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ...) -> None: ...

class TopicResponse(_message.Message):
    __slots__ = ("status", "topic")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    topic: Topic
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("include_internal", "page_size", "page_token")
    INCLUDE_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    include_internal: bool
    page_size: int
    page_token: str
    def __init__(self, include_internal: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("status", "topics", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...
