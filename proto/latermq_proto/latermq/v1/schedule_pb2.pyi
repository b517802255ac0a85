from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Schedule(_message.Message):
    __slots__ = ("name", "topic", "every_ms", "cron", "zone", "missed", "body", "tag", "keys", "properties", "message_group", "priority", "paused", "fault", "created_at_ms", "changed_at_ms", "next_at_ms", "last_at_ms", "ticks", "behind_ms", "declarers", "undeclared_since_ms", "message_withheld")
    class Missed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MISSED_UNSPECIFIED: _ClassVar[Schedule.Missed]
        SKIP: _ClassVar[Schedule.Missed]
        ONE: _ClassVar[Schedule.Missed]
        ALL: _ClassVar[Schedule.Missed]
    MISSED_UNSPECIFIED: Schedule.Missed
    SKIP: Schedule.Missed
    ONE: Schedule.Missed
    ALL: Schedule.Missed
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_MS_FIELD_NUMBER: _ClassVar[int]
    DECLARERS_FIELD_NUMBER: _ClassVar[int]
    UNDECLARED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    every_ms: int
    cron: str
    zone: str
    missed: Schedule.Missed
    body: bytes
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    message_group: str
    priority: int
    paused: bool
    fault: str
    created_at_ms: int
    changed_at_ms: int
    next_at_ms: int
    last_at_ms: int
    ticks: int
    behind_ms: int
    declarers: _containers.RepeatedCompositeFieldContainer[Declarer]
    undeclared_since_ms: int
    message_withheld: bool
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., every_ms: _Optional[int] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., missed: _Optional[_Union[Schedule.Missed, str, int]] = ..., body: _Optional[bytes] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., message_group: _Optional[str] = ..., priority: _Optional[int] = ..., paused: bool = ..., fault: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., changed_at_ms: _Optional[int] = ..., next_at_ms: _Optional[int] = ..., last_at_ms: _Optional[int] = ..., ticks: _Optional[int] = ..., behind_ms: _Optional[int] = ..., declarers: _Optional[_Iterable[_Union[Declarer, _Mapping]]] = ..., undeclared_since_ms: _Optional[int] = ..., message_withheld: bool = ...) -> None: ...

class Declarer(_message.Message):
    __slots__ = ("app", "since_ms", "running")
    APP_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    app: str
    since_ms: int
    running: bool
    def __init__(self, app: _Optional[str] = ..., since_ms: _Optional[int] = ..., running: bool = ...) -> None: ...

class PutScheduleRequest(_message.Message):
    __slots__ = ("schedule", "keep", "app")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    keep: bool
    app: str
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., keep: bool = ..., app: _Optional[str] = ...) -> None: ...

class PutScheduleResponse(_message.Message):
    __slots__ = ("status", "schedule", "before", "differences")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    schedule: Schedule
    before: Schedule
    differences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., before: _Optional[_Union[Schedule, _Mapping]] = ..., differences: _Optional[_Iterable[str]] = ...) -> None: ...

class ScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ScheduleResponse(_message.Message):
    __slots__ = ("status", "schedule")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    schedule: Schedule
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("status", "schedules", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RemoveScheduleResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...

class RunScheduleResponse(_message.Message):
    __slots__ = ("status", "message_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    message_id: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., message_id: _Optional[str] = ...) -> None: ...

class DeclareSchedulesRequest(_message.Message):
    __slots__ = ("app", "worker", "names", "ends")
    APP_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    app: str
    worker: str
    names: _containers.RepeatedScalarFieldContainer[str]
    ends: bool
    def __init__(self, app: _Optional[str] = ..., worker: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., ends: bool = ...) -> None: ...

class DeclareSchedulesResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...

class PruneSchedulesRequest(_message.Message):
    __slots__ = ("app", "keep", "dry_run", "idle_ms", "by_code")
    APP_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    BY_CODE_FIELD_NUMBER: _ClassVar[int]
    app: str
    keep: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    idle_ms: int
    by_code: bool
    def __init__(self, app: _Optional[str] = ..., keep: _Optional[_Iterable[str]] = ..., dry_run: bool = ..., idle_ms: _Optional[int] = ..., by_code: bool = ...) -> None: ...

class PruneSchedulesResponse(_message.Message):
    __slots__ = ("status", "removed", "kept")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    removed: _containers.RepeatedCompositeFieldContainer[Schedule]
    kept: _containers.RepeatedCompositeFieldContainer[Schedule]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., removed: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ..., kept: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ...) -> None: ...
