from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeldMessages(_message.Message):
    __slots__ = ("group", "topic", "count", "oldest_leased_at_ms", "first_due_at_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_LEASED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    count: int
    oldest_leased_at_ms: int
    first_due_at_ms: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., count: _Optional[int] = ..., oldest_leased_at_ms: _Optional[int] = ..., first_due_at_ms: _Optional[int] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("client_id", "type", "group", "topics", "language", "version", "address", "user", "since_at_ms", "seen_at_ms", "reachable", "held_count", "held", "service")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SINCE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    HELD_COUNT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    type: _definition_pb2.ClientType
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    language: str
    version: str
    address: str
    user: str
    since_at_ms: int
    seen_at_ms: int
    reachable: bool
    held_count: int
    held: _containers.RepeatedCompositeFieldContainer[HeldMessages]
    service: str
    def __init__(self, client_id: _Optional[str] = ..., type: _Optional[_Union[_definition_pb2.ClientType, str, int]] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., language: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., user: _Optional[str] = ..., since_at_ms: _Optional[int] = ..., seen_at_ms: _Optional[int] = ..., reachable: bool = ..., held_count: _Optional[int] = ..., held: _Optional[_Iterable[_Union[HeldMessages, _Mapping]]] = ..., service: _Optional[str] = ...) -> None: ...

class ListClientsRequest(_message.Message):
    __slots__ = ("group", "topic", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("status", "clients", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetClientRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class GetClientResponse(_message.Message):
    __slots__ = ("status", "client")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    client: Client
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., client: _Optional[_Union[Client, _Mapping]] = ...) -> None: ...

class KickClientRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class KickClientResponse(_message.Message):
    __slots__ = ("status", "released_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    released_count: int
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., released_count: _Optional[int] = ...) -> None: ...
