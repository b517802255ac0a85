from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClusterShard(_message.Message):
    __slots__ = ("number", "name", "endpoints")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    endpoints: _definition_pb2.Endpoints
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., endpoints: _Optional[_Union[_definition_pb2.Endpoints, _Mapping]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _definition_pb2.Endpoints
    def __init__(self, endpoints: _Optional[_Union[_definition_pb2.Endpoints, _Mapping]] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("status", "shard", "shards")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    shard: int
    shards: _containers.RepeatedCompositeFieldContainer[ClusterShard]
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., shard: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ClusterShard, _Mapping]]] = ...) -> None: ...

class CopyCatalogueRequest(_message.Message):
    __slots__ = ("shard", "version", "wait_ms", "topics", "groups", "changes")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    version: str
    wait_ms: int
    topics: _containers.RepeatedScalarFieldContainer[bytes]
    groups: _containers.RepeatedScalarFieldContainer[bytes]
    changes: bool
    def __init__(self, shard: _Optional[int] = ..., version: _Optional[str] = ..., wait_ms: _Optional[int] = ..., topics: _Optional[_Iterable[bytes]] = ..., groups: _Optional[_Iterable[bytes]] = ..., changes: bool = ...) -> None: ...

class DeletedEntry(_message.Message):
    __slots__ = ("name", "identity")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    identity: str
    def __init__(self, name: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...

class CopyCatalogueResponse(_message.Message):
    __slots__ = ("status", "version", "log", "pins", "topics", "groups", "limits", "users", "deleted_topics", "deleted_groups", "changes", "same_rights")
    class PinsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    SAME_RIGHTS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    version: str
    log: str
    pins: _containers.ScalarMap[str, int]
    topics: _containers.RepeatedScalarFieldContainer[bytes]
    groups: _containers.RepeatedScalarFieldContainer[bytes]
    limits: _containers.RepeatedScalarFieldContainer[bytes]
    users: _containers.RepeatedScalarFieldContainer[bytes]
    deleted_topics: _containers.RepeatedCompositeFieldContainer[DeletedEntry]
    deleted_groups: _containers.RepeatedCompositeFieldContainer[DeletedEntry]
    changes: bool
    same_rights: bool
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., version: _Optional[str] = ..., log: _Optional[str] = ..., pins: _Optional[_Mapping[str, int]] = ..., topics: _Optional[_Iterable[bytes]] = ..., groups: _Optional[_Iterable[bytes]] = ..., limits: _Optional[_Iterable[bytes]] = ..., users: _Optional[_Iterable[bytes]] = ..., deleted_topics: _Optional[_Iterable[_Union[DeletedEntry, _Mapping]]] = ..., deleted_groups: _Optional[_Iterable[_Union[DeletedEntry, _Mapping]]] = ..., changes: bool = ..., same_rights: bool = ...) -> None: ...
