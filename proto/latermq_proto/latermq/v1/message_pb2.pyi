from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2 as _dead_letter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LifeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIFE_STATE_UNSPECIFIED: _ClassVar[LifeState]
    READY: _ClassVar[LifeState]
    LEASED: _ClassVar[LifeState]
    WAITS_RETRY: _ClassVar[LifeState]
    RETRY: _ClassVar[LifeState]
    DONE: _ClassVar[LifeState]
    DIED: _ClassVar[LifeState]
    LIFE_UNKNOWN: _ClassVar[LifeState]
    HELD: _ClassVar[LifeState]
LIFE_STATE_UNSPECIFIED: LifeState
READY: LifeState
LEASED: LifeState
WAITS_RETRY: LifeState
RETRY: LifeState
DONE: LifeState
DIED: LifeState
LIFE_UNKNOWN: LifeState
HELD: LifeState

class FoundMessage(_message.Message):
    __slots__ = ("topic", "message_id", "queue_id", "queue_offset", "stored_at_ms", "due_at_ms", "born_at_ms", "born_host", "message_type", "tag", "keys", "message_group", "properties", "body", "body_size", "body_encoding", "origin_topic", "priority", "lite_topic", "waits_until_ms", "cancelled")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    BODY_ENCODING_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    WAITS_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    queue_id: int
    queue_offset: int
    stored_at_ms: int
    due_at_ms: int
    born_at_ms: int
    born_host: str
    message_type: str
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    message_group: str
    properties: _containers.ScalarMap[str, str]
    body: bytes
    body_size: int
    body_encoding: str
    origin_topic: str
    priority: int
    lite_topic: str
    waits_until_ms: int
    cancelled: bool
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., stored_at_ms: _Optional[int] = ..., due_at_ms: _Optional[int] = ..., born_at_ms: _Optional[int] = ..., born_host: _Optional[str] = ..., message_type: _Optional[str] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., message_group: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ..., body_size: _Optional[int] = ..., body_encoding: _Optional[str] = ..., origin_topic: _Optional[str] = ..., priority: _Optional[int] = ..., lite_topic: _Optional[str] = ..., waits_until_ms: _Optional[int] = ..., cancelled: bool = ...) -> None: ...

class FindMessagesRequest(_message.Message):
    __slots__ = ("topic", "message_id", "key", "begin_ms", "end_ms", "with_body", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    WITH_BODY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    key: str
    begin_ms: int
    end_ms: int
    with_body: bool
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., key: _Optional[str] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., with_body: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class FindMessagesResponse(_message.Message):
    __slots__ = ("status", "messages", "next_page_token", "damaged_positions")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    messages: _containers.RepeatedCompositeFieldContainer[FoundMessage]
    next_page_token: str
    damaged_positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[FoundMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., damaged_positions: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupLife(_message.Message):
    __slots__ = ("group", "state", "attempt", "max_attempts", "until_ms", "client_id", "ahead_count", "dead_offset", "dead_at_ms", "dead_state", "parked")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    AHEAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DEAD_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_STATE_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: LifeState
    attempt: int
    max_attempts: int
    until_ms: int
    client_id: str
    ahead_count: int
    dead_offset: int
    dead_at_ms: int
    dead_state: _dead_letter_pb2.DeadLetterState
    parked: bool
    def __init__(self, group: _Optional[str] = ..., state: _Optional[_Union[LifeState, str, int]] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., until_ms: _Optional[int] = ..., client_id: _Optional[str] = ..., ahead_count: _Optional[int] = ..., dead_offset: _Optional[int] = ..., dead_at_ms: _Optional[int] = ..., dead_state: _Optional[_Union[_dead_letter_pb2.DeadLetterState, str, int]] = ..., parked: bool = ...) -> None: ...

class MessageLife(_message.Message):
    __slots__ = ("message", "waits_until_ms", "expired", "groups", "half", "letter_state")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WAITS_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    HALF_FIELD_NUMBER: _ClassVar[int]
    LETTER_STATE_FIELD_NUMBER: _ClassVar[int]
    message: FoundMessage
    waits_until_ms: int
    expired: bool
    groups: _containers.RepeatedCompositeFieldContainer[GroupLife]
    half: bool
    letter_state: _dead_letter_pb2.DeadLetterState
    def __init__(self, message: _Optional[_Union[FoundMessage, _Mapping]] = ..., waits_until_ms: _Optional[int] = ..., expired: bool = ..., groups: _Optional[_Iterable[_Union[GroupLife, _Mapping]]] = ..., half: bool = ..., letter_state: _Optional[_Union[_dead_letter_pb2.DeadLetterState, str, int]] = ...) -> None: ...

class DescribeMessageRequest(_message.Message):
    __slots__ = ("message_id", "topic", "with_body")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WITH_BODY_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    topic: str
    with_body: bool
    def __init__(self, message_id: _Optional[str] = ..., topic: _Optional[str] = ..., with_body: bool = ...) -> None: ...

class DescribeMessageResponse(_message.Message):
    __slots__ = ("status", "lives", "damaged_positions")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIVES_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    lives: _containers.RepeatedCompositeFieldContainer[MessageLife]
    damaged_positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., lives: _Optional[_Iterable[_Union[MessageLife, _Mapping]]] = ..., damaged_positions: _Optional[_Iterable[int]] = ...) -> None: ...
