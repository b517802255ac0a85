from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnDead(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_DEAD_UNSPECIFIED: _ClassVar[OnDead]
    SKIP: _ClassVar[OnDead]
    PARK: _ClassVar[OnDead]

class GroupOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BY_NAME: _ClassVar[GroupOrder]
    BY_AGE: _ClassVar[GroupOrder]
    BY_READY: _ClassVar[GroupOrder]
    BY_FAILURES: _ClassVar[GroupOrder]
    BY_DEAD_LETTERS: _ClassVar[GroupOrder]
ON_DEAD_UNSPECIFIED: OnDead
SKIP: OnDead
PARK: OnDead
BY_NAME: GroupOrder
BY_AGE: GroupOrder
BY_READY: GroupOrder
BY_FAILURES: GroupOrder
BY_DEAD_LETTERS: GroupOrder

class Backoff(_message.Message):
    __slots__ = ("ladder", "exponential", "fixed_ms", "jitter")
    class Exponential(_message.Message):
        __slots__ = ("initial_ms", "max_ms", "multiplier")
        INITIAL_MS_FIELD_NUMBER: _ClassVar[int]
        MAX_MS_FIELD_NUMBER: _ClassVar[int]
        MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
        initial_ms: int
        max_ms: int
        multiplier: float
        def __init__(self, initial_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., multiplier: _Optional[float] = ...) -> None: ...
    class Ladder(_message.Message):
        __slots__ = ("delays_ms",)
        DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
        delays_ms: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...
    LADDER_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    FIXED_MS_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    ladder: Backoff.Ladder
    exponential: Backoff.Exponential
    fixed_ms: int
    jitter: float
    def __init__(self, ladder: _Optional[_Union[Backoff.Ladder, _Mapping]] = ..., exponential: _Optional[_Union[Backoff.Exponential, _Mapping]] = ..., fixed_ms: _Optional[int] = ..., jitter: _Optional[float] = ...) -> None: ...

class TopicProgress(_message.Message):
    __slots__ = ("topic", "ready_count", "in_flight_count", "backoff_count", "last_consumed_at_ms", "held_count", "blocked_message_group_count", "parked_message_group_count", "oldest_unread_at_ms", "in_per_s", "out_per_s", "failed_per_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_CONSUMED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_MESSAGE_GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARKED_MESSAGE_GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNREAD_AT_MS_FIELD_NUMBER: _ClassVar[int]
    IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    FAILED_PER_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ready_count: int
    in_flight_count: int
    backoff_count: int
    last_consumed_at_ms: int
    held_count: int
    blocked_message_group_count: int
    parked_message_group_count: int
    oldest_unread_at_ms: int
    in_per_s: float
    out_per_s: float
    failed_per_s: float
    def __init__(self, topic: _Optional[str] = ..., ready_count: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., backoff_count: _Optional[int] = ..., last_consumed_at_ms: _Optional[int] = ..., held_count: _Optional[int] = ..., blocked_message_group_count: _Optional[int] = ..., parked_message_group_count: _Optional[int] = ..., oldest_unread_at_ms: _Optional[int] = ..., in_per_s: _Optional[float] = ..., out_per_s: _Optional[float] = ..., failed_per_s: _Optional[float] = ...) -> None: ...

class FilterUse(_message.Message):
    __slots__ = ("expression", "client_count")
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    expression: str
    client_count: int
    def __init__(self, expression: _Optional[str] = ..., client_count: _Optional[int] = ...) -> None: ...

class UnequalFilters(_message.Message):
    __slots__ = ("topic", "filters")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filters: _containers.RepeatedCompositeFieldContainer[FilterUse]
    def __init__(self, topic: _Optional[str] = ..., filters: _Optional[_Iterable[_Union[FilterUse, _Mapping]]] = ...) -> None: ...

class ServiceUse(_message.Message):
    __slots__ = ("service", "client_id", "client_count", "address")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    service: str
    client_id: str
    client_count: int
    address: str
    def __init__(self, service: _Optional[str] = ..., client_id: _Optional[str] = ..., client_count: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class TopicServices(_message.Message):
    __slots__ = ("topic", "services")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    services: _containers.RepeatedCompositeFieldContainer[ServiceUse]
    def __init__(self, topic: _Optional[str] = ..., services: _Optional[_Iterable[_Union[ServiceUse, _Mapping]]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "fifo", "max_attempts", "backoff", "created_at_ms", "topics", "dead_letter_count", "on_dead", "lite_topics_of", "lite_exclusive", "unequal_filters", "progress", "services", "default_backoff", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIFO_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_COUNT_FIELD_NUMBER: _ClassVar[int]
    ON_DEAD_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_OF_FIELD_NUMBER: _ClassVar[int]
    LITE_EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    UNEQUAL_FILTERS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    fifo: bool
    max_attempts: int
    backoff: Backoff
    created_at_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicProgress]
    dead_letter_count: int
    on_dead: OnDead
    lite_topics_of: str
    lite_exclusive: bool
    unequal_filters: _containers.RepeatedCompositeFieldContainer[UnequalFilters]
    progress: TopicProgress
    services: _containers.RepeatedCompositeFieldContainer[TopicServices]
    default_backoff: Backoff
    weight: int
    def __init__(self, name: _Optional[str] = ..., fifo: bool = ..., max_attempts: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., created_at_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicProgress, _Mapping]]] = ..., dead_letter_count: _Optional[int] = ..., on_dead: _Optional[_Union[OnDead, str, int]] = ..., lite_topics_of: _Optional[str] = ..., lite_exclusive: bool = ..., unequal_filters: _Optional[_Iterable[_Union[UnequalFilters, _Mapping]]] = ..., progress: _Optional[_Union[TopicProgress, _Mapping]] = ..., services: _Optional[_Iterable[_Union[TopicServices, _Mapping]]] = ..., default_backoff: _Optional[_Union[Backoff, _Mapping]] = ..., weight: _Optional[int] = ...) -> None: ...

class CreateGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class AlterGroupRequest(_message.Message):
    __slots__ = ("name", "max_attempts", "backoff", "clear_backoff", "on_dead", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    CLEAR_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    ON_DEAD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_attempts: int
    backoff: Backoff
    clear_backoff: bool
    on_dead: OnDead
    weight: int
    def __init__(self, name: _Optional[str] = ..., max_attempts: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., clear_backoff: bool = ..., on_dead: _Optional[_Union[OnDead, str, int]] = ..., weight: _Optional[int] = ...) -> None: ...

class GroupResponse(_message.Message):
    __slots__ = ("status", "group")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    group: Group
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "order", "names")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    order: GroupOrder
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., order: _Optional[_Union[GroupOrder, str, int]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("status", "groups", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("name", "topic", "to_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    to_ms: int
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., to_ms: _Optional[int] = ...) -> None: ...

class ResetGroupResponse(_message.Message):
    __slots__ = ("status", "offsets")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class MessageGroup(_message.Message):
    __slots__ = ("topic", "name", "state", "due_at_ms", "message_id", "pending_id", "attempt", "live_count", "held_count", "dead_letter_offsets")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[MessageGroup.State]
        READY: _ClassVar[MessageGroup.State]
        IN_FLIGHT: _ClassVar[MessageGroup.State]
        BACKOFF: _ClassVar[MessageGroup.State]
        PARKED: _ClassVar[MessageGroup.State]
    STATE_UNSPECIFIED: MessageGroup.State
    READY: MessageGroup.State
    IN_FLIGHT: MessageGroup.State
    BACKOFF: MessageGroup.State
    PARKED: MessageGroup.State
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PENDING_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    HELD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    state: MessageGroup.State
    due_at_ms: int
    message_id: str
    pending_id: str
    attempt: int
    live_count: int
    held_count: int
    dead_letter_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[MessageGroup.State, str, int]] = ..., due_at_ms: _Optional[int] = ..., message_id: _Optional[str] = ..., pending_id: _Optional[str] = ..., attempt: _Optional[int] = ..., live_count: _Optional[int] = ..., held_count: _Optional[int] = ..., dead_letter_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class ListMessageGroupsRequest(_message.Message):
    __slots__ = ("group", "topic", "state", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    state: MessageGroup.State
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., state: _Optional[_Union[MessageGroup.State, str, int]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMessageGroupsResponse(_message.Message):
    __slots__ = ("status", "message_groups", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    message_groups: _containers.RepeatedCompositeFieldContainer[MessageGroup]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., message_groups: _Optional[_Iterable[_Union[MessageGroup, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListServicesRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListServicesResponse(_message.Message):
    __slots__ = ("status", "services")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    services: _containers.RepeatedCompositeFieldContainer[TopicServices]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., services: _Optional[_Iterable[_Union[TopicServices, _Mapping]]] = ...) -> None: ...
