from latermq_proto.apache.rocketmq.v2 import definition_pb2 as _definition_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Grant(_message.Message):
    __slots__ = ("kind", "pattern", "rights")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Grant.Kind]
        TOPIC: _ClassVar[Grant.Kind]
        GROUP: _ClassVar[Grant.Kind]
    KIND_UNSPECIFIED: Grant.Kind
    TOPIC: Grant.Kind
    GROUP: Grant.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    kind: Grant.Kind
    pattern: str
    rights: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[_Union[Grant.Kind, str, int]] = ..., pattern: _Optional[str] = ..., rights: _Optional[_Iterable[str]] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("access_key", "admin", "disabled", "created_at_ms", "rotated_at_ms", "grants", "configured")
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ROTATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    admin: bool
    disabled: bool
    created_at_ms: int
    rotated_at_ms: int
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    configured: bool
    def __init__(self, access_key: _Optional[str] = ..., admin: bool = ..., disabled: bool = ..., created_at_ms: _Optional[int] = ..., rotated_at_ms: _Optional[int] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., configured: bool = ...) -> None: ...

class CreateUserRequest(_message.Message):
    __slots__ = ("access_key", "secret", "admin")
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    secret: str
    admin: bool
    def __init__(self, access_key: _Optional[str] = ..., secret: _Optional[str] = ..., admin: bool = ...) -> None: ...

class SecretResponse(_message.Message):
    __slots__ = ("status", "user", "secret")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    user: User
    secret: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., user: _Optional[_Union[User, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class UserResponse(_message.Message):
    __slots__ = ("status", "user")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    user: User
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., user: _Optional[_Union[User, _Mapping]] = ...) -> None: ...

class AlterUserRequest(_message.Message):
    __slots__ = ("access_key", "admin", "disabled")
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    admin: bool
    disabled: bool
    def __init__(self, access_key: _Optional[str] = ..., admin: bool = ..., disabled: bool = ...) -> None: ...

class GetUserRequest(_message.Message):
    __slots__ = ("access_key",)
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    def __init__(self, access_key: _Optional[str] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("status", "users", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    users: _containers.RepeatedCompositeFieldContainer[User]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ..., users: _Optional[_Iterable[_Union[User, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RotateUserRequest(_message.Message):
    __slots__ = ("access_key", "secret")
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    secret: str
    def __init__(self, access_key: _Optional[str] = ..., secret: _Optional[str] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("access_key",)
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    def __init__(self, access_key: _Optional[str] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _definition_pb2.Status
    def __init__(self, status: _Optional[_Union[_definition_pb2.Status, _Mapping]] = ...) -> None: ...

class ChangeGrantRequest(_message.Message):
    __slots__ = ("access_key", "grant", "others")
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    grant: Grant
    others: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, access_key: _Optional[str] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ..., others: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...
