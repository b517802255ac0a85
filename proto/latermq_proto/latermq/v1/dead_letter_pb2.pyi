from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeadLetterState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEAD_LETTER_STATE_UNSPECIFIED: _ClassVar[DeadLetterState]
    DEAD: _ClassVar[DeadLetterState]
    REDRIVEN: _ClassVar[DeadLetterState]
    DROPPED: _ClassVar[DeadLetterState]
    ANY: _ClassVar[DeadLetterState]
DEAD_LETTER_STATE_UNSPECIFIED: DeadLetterState
DEAD: DeadLetterState
REDRIVEN: DeadLetterState
DROPPED: DeadLetterState
ANY: DeadLetterState

class Attempt(_message.Message):
    __slots__ = ("attempt", "started_at_ms", "ended_at_ms", "client_id", "outcome", "failure_class", "failure_text", "stack_hash", "stack", "backoff_ms", "life")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_TEXT_FIELD_NUMBER: _ClassVar[int]
    STACK_HASH_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    started_at_ms: int
    ended_at_ms: int
    client_id: str
    outcome: str
    failure_class: str
    failure_text: str
    stack_hash: str
    stack: str
    backoff_ms: int
    life: int
    def __init__(self, attempt: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., client_id: _Optional[str] = ..., outcome: _Optional[str] = ..., failure_class: _Optional[str] = ..., failure_text: _Optional[str] = ..., stack_hash: _Optional[str] = ..., stack: _Optional[str] = ..., backoff_ms: _Optional[int] = ..., life: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("group", "queue_offset", "message_id", "origin_topic", "origin_queue_id", "origin_offset", "reason", "attempt_count", "max_attempts", "first_failure_at_ms", "last_failure_at_ms", "dead_at_ms", "failure_class", "failure_text", "signature", "tag", "keys", "message_group", "properties", "body_size", "body", "born_at_ms", "born_host", "stored_at_ms", "state", "redriven_at_ms", "redrive_count", "attempts", "body_encoding", "parks", "priority", "lite_topic")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FAILURE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_TEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BORN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BODY_ENCODING_FIELD_NUMBER: _ClassVar[int]
    PARKS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue_offset: int
    message_id: str
    origin_topic: str
    origin_queue_id: int
    origin_offset: int
    reason: str
    attempt_count: int
    max_attempts: int
    first_failure_at_ms: int
    last_failure_at_ms: int
    dead_at_ms: int
    failure_class: str
    failure_text: str
    signature: str
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    message_group: str
    properties: _containers.ScalarMap[str, str]
    body_size: int
    body: bytes
    born_at_ms: int
    born_host: str
    stored_at_ms: int
    state: DeadLetterState
    redriven_at_ms: int
    redrive_count: int
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    body_encoding: str
    parks: bool
    priority: int
    lite_topic: str
    def __init__(self, group: _Optional[str] = ..., queue_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., origin_topic: _Optional[str] = ..., origin_queue_id: _Optional[int] = ..., origin_offset: _Optional[int] = ..., reason: _Optional[str] = ..., attempt_count: _Optional[int] = ..., max_attempts: _Optional[int] = ..., first_failure_at_ms: _Optional[int] = ..., last_failure_at_ms: _Optional[int] = ..., dead_at_ms: _Optional[int] = ..., failure_class: _Optional[str] = ..., failure_text: _Optional[str] = ..., signature: _Optional[str] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., message_group: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., body_size: _Optional[int] = ..., body: _Optional[bytes] = ..., born_at_ms: _Optional[int] = ..., born_host: _Optional[str] = ..., stored_at_ms: _Optional[int] = ..., state: _Optional[_Union[DeadLetterState, str, int]] = ..., redriven_at_ms: _Optional[int] = ..., redrive_count: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., body_encoding: _Optional[str] = ..., parks: bool = ..., priority: _Optional[int] = ..., lite_topic: _Optional[str] = ...) -> None: ...

class DeadLetterFilter(_message.Message):
    __slots__ = ("message_ids", "queue_offsets", "signature", "failure_class", "origin_topic", "reason", "dead_after_ms", "dead_before_ms", "state")
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    signature: str
    failure_class: str
    origin_topic: str
    reason: str
    dead_after_ms: int
    dead_before_ms: int
    state: DeadLetterState
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., signature: _Optional[str] = ..., failure_class: _Optional[str] = ..., origin_topic: _Optional[str] = ..., reason: _Optional[str] = ..., dead_after_ms: _Optional[int] = ..., dead_before_ms: _Optional[int] = ..., state: _Optional[_Union[DeadLetterState, str, int]] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("group", "filter", "page_size", "page_token", "include_body", "newest_first")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_BODY_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    group: str
    filter: DeadLetterFilter
    page_size: int
    page_token: str
    include_body: bool
    newest_first: bool
    def __init__(self, group: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_body: bool = ..., newest_first: bool = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("status", "letters", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetDeadLetterRequest(_message.Message):
    __slots__ = ("group", "message_id", "queue_offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    message_id: str
    queue_offset: int
    def __init__(self, group: _Optional[str] = ..., message_id: _Optional[str] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class GetDeadLetterResponse(_message.Message):
    __slots__ = ("status", "letter")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LETTER_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    letter: DeadLetter
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., letter: _Optional[_Union[DeadLetter, _Mapping]] = ...) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    __slots__ = ("group", "filter", "to_topic", "max_count", "rate_per_second", "dry_run")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    TO_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    filter: DeadLetterFilter
    to_topic: str
    max_count: int
    rate_per_second: int
    dry_run: bool
    def __init__(self, group: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., to_topic: _Optional[str] = ..., max_count: _Optional[int] = ..., rate_per_second: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class DropDeadLettersRequest(_message.Message):
    __slots__ = ("group", "filter", "max_count", "dry_run")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    filter: DeadLetterFilter
    max_count: int
    dry_run: bool
    def __init__(self, group: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., max_count: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class DeadLetterProgress(_message.Message):
    __slots__ = ("status", "scanned_count", "changed_count", "failed_count", "done", "last_error")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    scanned_count: int
    changed_count: int
    failed_count: int
    done: bool
    last_error: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., scanned_count: _Optional[int] = ..., changed_count: _Optional[int] = ..., failed_count: _Optional[int] = ..., done: bool = ..., last_error: _Optional[str] = ...) -> None: ...
