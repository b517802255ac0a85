from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogRecord(_message.Message):
    __slots__ = ("position", "checksum")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    position: int
    checksum: int
    def __init__(self, position: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class LogSegment(_message.Message):
    __slots__ = ("base", "size")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    base: int
    size: int
    def __init__(self, base: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class BeginBackupRequest(_message.Message):
    __slots__ = ("known",)
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    known: _containers.RepeatedCompositeFieldContainer[LogRecord]
    def __init__(self, known: _Optional[_Iterable[_Union[LogRecord, _Mapping]]] = ...) -> None: ...

class BeginBackupResponse(_message.Message):
    __slots__ = ("status", "log_uuid", "position", "newest", "segments", "continued", "repairs", "directory", "shard_mark", "broker", "version", "now_ms", "hold")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LOG_UUID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SHARD_MARK_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    log_uuid: bytes
    position: int
    newest: LogRecord
    segments: _containers.RepeatedCompositeFieldContainer[LogSegment]
    continued: _containers.RepeatedCompositeFieldContainer[LogRecord]
    repairs: int
    directory: str
    shard_mark: bytes
    broker: str
    version: str
    now_ms: int
    hold: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., log_uuid: _Optional[bytes] = ..., position: _Optional[int] = ..., newest: _Optional[_Union[LogRecord, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[LogSegment, _Mapping]]] = ..., continued: _Optional[_Iterable[_Union[LogRecord, _Mapping]]] = ..., repairs: _Optional[int] = ..., directory: _Optional[str] = ..., shard_mark: _Optional[bytes] = ..., broker: _Optional[str] = ..., version: _Optional[str] = ..., now_ms: _Optional[int] = ..., hold: _Optional[str] = ...) -> None: ...

class KeepBackupRequest(_message.Message):
    __slots__ = ("hold", "from_position")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    hold: str
    from_position: int
    def __init__(self, hold: _Optional[str] = ..., from_position: _Optional[int] = ...) -> None: ...

class KeepBackupResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("begin", "end", "bytes_per_second")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    bytes_per_second: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("status", "data")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    data: bytes
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...
