from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2 as _dead_letter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeQueuesRequest(_message.Message):
    __slots__ = ("topics", "topic_pattern", "at_ms", "lives")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    LIVES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    at_ms: int
    lives: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., at_ms: _Optional[int] = ..., lives: bool = ...) -> None: ...

class QueueEnds(_message.Message):
    __slots__ = ("queue_id", "earliest_offset", "next_offset", "offset_at", "lives")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_AT_FIELD_NUMBER: _ClassVar[int]
    LIVES_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    earliest_offset: int
    next_offset: int
    offset_at: int
    lives: _containers.RepeatedCompositeFieldContainer[LifeBegin]
    def __init__(self, queue_id: _Optional[int] = ..., earliest_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., offset_at: _Optional[int] = ..., lives: _Optional[_Iterable[_Union[LifeBegin, _Mapping]]] = ...) -> None: ...

class LifeBegin(_message.Message):
    __slots__ = ("offset", "life")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    life: int
    def __init__(self, offset: _Optional[int] = ..., life: _Optional[int] = ...) -> None: ...

class TopicEnds(_message.Message):
    __slots__ = ("status", "topic", "epoch", "queues")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    topic: str
    epoch: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueEnds]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., topic: _Optional[str] = ..., epoch: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueEnds, _Mapping]]] = ...) -> None: ...

class DescribeQueuesResponse(_message.Message):
    __slots__ = ("status", "topics")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    topics: _containers.RepeatedCompositeFieldContainer[TopicEnds]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicEnds, _Mapping]]] = ...) -> None: ...

class ReadQueueRequest(_message.Message):
    __slots__ = ("topic", "epoch", "queue_id", "start_offset", "end_offset", "page_rows_max", "page_bytes_max", "columns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAGE_ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    PAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    epoch: str
    queue_id: int
    start_offset: int
    end_offset: int
    page_rows_max: int
    page_bytes_max: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., epoch: _Optional[str] = ..., queue_id: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., page_rows_max: _Optional[int] = ..., page_bytes_max: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class QueueRow(_message.Message):
    __slots__ = ("queue_offset", "message_id", "message_type", "tag", "keys", "message_group", "body", "body_encoding", "properties", "born_timestamp", "born_host", "store_timestamp", "delivery_timestamp", "delivery_attempt", "consumer_group", "origin_topic", "origin_queue_id", "origin_offset", "origin_message_id", "reason", "attempt_count", "max_attempts", "first_failure_at", "last_failure_at", "dead_at", "failure_class", "failure_text", "signature", "attempts", "redriven_at", "redrive_count")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_ENCODING_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FAILURE_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_AT_FIELD_NUMBER: _ClassVar[int]
    DEAD_AT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_TEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    message_id: str
    message_type: str
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    message_group: str
    body: bytes
    body_encoding: str
    properties: _containers.ScalarMap[str, str]
    born_timestamp: int
    born_host: str
    store_timestamp: int
    delivery_timestamp: int
    delivery_attempt: int
    consumer_group: str
    origin_topic: str
    origin_queue_id: int
    origin_offset: int
    origin_message_id: str
    reason: str
    attempt_count: int
    max_attempts: int
    first_failure_at: int
    last_failure_at: int
    dead_at: int
    failure_class: str
    failure_text: str
    signature: str
    attempts: _containers.RepeatedCompositeFieldContainer[_dead_letter_pb2.Attempt]
    redriven_at: int
    redrive_count: int
    def __init__(self, queue_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., message_type: _Optional[str] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., message_group: _Optional[str] = ..., body: _Optional[bytes] = ..., body_encoding: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., born_timestamp: _Optional[int] = ..., born_host: _Optional[str] = ..., store_timestamp: _Optional[int] = ..., delivery_timestamp: _Optional[int] = ..., delivery_attempt: _Optional[int] = ..., consumer_group: _Optional[str] = ..., origin_topic: _Optional[str] = ..., origin_queue_id: _Optional[int] = ..., origin_offset: _Optional[int] = ..., origin_message_id: _Optional[str] = ..., reason: _Optional[str] = ..., attempt_count: _Optional[int] = ..., max_attempts: _Optional[int] = ..., first_failure_at: _Optional[int] = ..., last_failure_at: _Optional[int] = ..., dead_at: _Optional[int] = ..., failure_class: _Optional[str] = ..., failure_text: _Optional[str] = ..., signature: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[_dead_letter_pb2.Attempt, _Mapping]]] = ..., redriven_at: _Optional[int] = ..., redrive_count: _Optional[int] = ...) -> None: ...

class ReadQueuePage(_message.Message):
    __slots__ = ("status", "first_offset", "rows", "earliest_offset", "next_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    first_offset: int
    rows: _containers.RepeatedCompositeFieldContainer[QueueRow]
    earliest_offset: int
    next_offset: int
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., first_offset: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[QueueRow, _Mapping]]] = ..., earliest_offset: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...
