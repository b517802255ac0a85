from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PendingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PENDING_KIND_UNSPECIFIED: _ClassVar[PendingKind]
    DELAYED: _ClassVar[PendingKind]
    BACKOFF: _ClassVar[PendingKind]
    IN_FLIGHT: _ClassVar[PendingKind]
    HALF: _ClassVar[PendingKind]
PENDING_KIND_UNSPECIFIED: PendingKind
DELAYED: PendingKind
BACKOFF: PendingKind
IN_FLIGHT: PendingKind
HALF: PendingKind

class PendingMessage(_message.Message):
    __slots__ = ("kind", "pending_id", "topic", "group", "message_id", "tag", "keys", "due_at_ms", "stored_at_ms", "attempt", "max_attempts", "body_size", "last_failure_class", "last_failure_text", "checks", "checks_max", "delay_level", "priority", "lite_topic", "client_id", "ready")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PENDING_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_TEXT_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_MAX_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    kind: PendingKind
    pending_id: str
    topic: str
    group: str
    message_id: str
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    due_at_ms: int
    stored_at_ms: int
    attempt: int
    max_attempts: int
    body_size: int
    last_failure_class: str
    last_failure_text: str
    checks: int
    checks_max: int
    delay_level: int
    priority: int
    lite_topic: str
    client_id: str
    ready: bool
    def __init__(self, kind: _Optional[_Union[PendingKind, str, int]] = ..., pending_id: _Optional[str] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., message_id: _Optional[str] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., due_at_ms: _Optional[int] = ..., stored_at_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., body_size: _Optional[int] = ..., last_failure_class: _Optional[str] = ..., last_failure_text: _Optional[str] = ..., checks: _Optional[int] = ..., checks_max: _Optional[int] = ..., delay_level: _Optional[int] = ..., priority: _Optional[int] = ..., lite_topic: _Optional[str] = ..., client_id: _Optional[str] = ..., ready: bool = ...) -> None: ...

class PendingFilter(_message.Message):
    __slots__ = ("topic", "group", "kind", "due_before_ms", "delay_level")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DUE_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    kind: PendingKind
    due_before_ms: int
    delay_level: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., kind: _Optional[_Union[PendingKind, str, int]] = ..., due_before_ms: _Optional[int] = ..., delay_level: _Optional[int] = ...) -> None: ...

class ListPendingRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: PendingFilter
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[PendingFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPendingResponse(_message.Message):
    __slots__ = ("status", "messages", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    messages: _containers.RepeatedCompositeFieldContainer[PendingMessage]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[PendingMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CountPendingRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: PendingFilter
    def __init__(self, filter: _Optional[_Union[PendingFilter, _Mapping]] = ...) -> None: ...

class PendingCount(_message.Message):
    __slots__ = ("kind", "topic", "group", "count", "next_due_at_ms", "ready_count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: PendingKind
    topic: str
    group: str
    count: int
    next_due_at_ms: int
    ready_count: int
    def __init__(self, kind: _Optional[_Union[PendingKind, str, int]] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., count: _Optional[int] = ..., next_due_at_ms: _Optional[int] = ..., ready_count: _Optional[int] = ...) -> None: ...

class CountPendingResponse(_message.Message):
    __slots__ = ("status", "total", "counts")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    total: int
    counts: _containers.RepeatedCompositeFieldContainer[PendingCount]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., total: _Optional[int] = ..., counts: _Optional[_Iterable[_Union[PendingCount, _Mapping]]] = ...) -> None: ...

class ChangePendingRequest(_message.Message):
    __slots__ = ("ids", "due_at_ms")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    due_at_ms: int
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., due_at_ms: _Optional[int] = ...) -> None: ...

class ChangePendingResult(_message.Message):
    __slots__ = ("status", "id", "message_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    id: str
    message_id: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., id: _Optional[str] = ..., message_id: _Optional[str] = ...) -> None: ...

class ChangePendingResponse(_message.Message):
    __slots__ = ("status", "results")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    results: _containers.RepeatedCompositeFieldContainer[ChangePendingResult]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., results: _Optional[_Iterable[_Union[ChangePendingResult, _Mapping]]] = ...) -> None: ...
