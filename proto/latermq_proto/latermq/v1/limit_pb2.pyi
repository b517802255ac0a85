from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Limit(_message.Message):
    __slots__ = ("scope", "name", "parked_polls", "in_flight", "sends_per_s", "bytes_per_s", "changed_at_ms")
    class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SCOPE_UNSPECIFIED: _ClassVar[Limit.Scope]
        CLIENT: _ClassVar[Limit.Scope]
        GROUP: _ClassVar[Limit.Scope]
        USER: _ClassVar[Limit.Scope]
    SCOPE_UNSPECIFIED: Limit.Scope
    CLIENT: Limit.Scope
    GROUP: Limit.Scope
    USER: Limit.Scope
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARKED_POLLS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    SENDS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    scope: Limit.Scope
    name: str
    parked_polls: int
    in_flight: int
    sends_per_s: int
    bytes_per_s: int
    changed_at_ms: int
    def __init__(self, scope: _Optional[_Union[Limit.Scope, str, int]] = ..., name: _Optional[str] = ..., parked_polls: _Optional[int] = ..., in_flight: _Optional[int] = ..., sends_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., changed_at_ms: _Optional[int] = ...) -> None: ...

class SetLimitRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: Limit
    def __init__(self, limit: _Optional[_Union[Limit, _Mapping]] = ...) -> None: ...

class LimitResponse(_message.Message):
    __slots__ = ("status", "limit")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    limit: Limit
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ...) -> None: ...

class UnsetLimitRequest(_message.Message):
    __slots__ = ("scope", "name")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    scope: Limit.Scope
    name: str
    def __init__(self, scope: _Optional[_Union[Limit.Scope, str, int]] = ..., name: _Optional[str] = ...) -> None: ...

class UnsetLimitResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...

class ListLimitsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLimitsResponse(_message.Message):
    __slots__ = ("status", "limits", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    limits: _containers.RepeatedCompositeFieldContainer[Limit]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[Limit, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
