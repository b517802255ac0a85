from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Failure(_message.Message):
    __slots__ = ("class_name", "text", "stack_hash", "stack", "rejected")
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STACK_HASH_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    text: str
    stack_hash: str
    stack: str
    rejected: bool
    def __init__(self, class_name: _Optional[str] = ..., text: _Optional[str] = ..., stack_hash: _Optional[str] = ..., stack: _Optional[str] = ..., rejected: bool = ...) -> None: ...
