"""Protobuf messages described in a test, so that nothing has to be generated for it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

_Field: Final = descriptor_pb2.FieldDescriptorProto
ANY: Final = "google.protobuf.Any"
TYPES: Final = {
    "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64, "uint32": _Field.TYPE_UINT32,
    "bool": _Field.TYPE_BOOL, "bytes": _Field.TYPE_BYTES, "string": _Field.TYPE_STRING,
}  # fmt: skip


def described(
    package: str, messages: Mapping[str, Sequence[tuple[str, int, str]]]
) -> dict[str, Any]:
    """The classes of these messages, by name.

    Args:
        messages: name, number and type of each field. "*": repeated, "?": it knows whether it is
            set; then a type of protobuf, "." and a message of the package, or google.protobuf.Any.
            An enum is an int32.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    file.dependency.append(any_pb2.DESCRIPTOR.name)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            made = message.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL)
            if kind.startswith("*"):
                made.label = _Field.LABEL_REPEATED
            if kind.startswith("?"):
                made.proto3_optional = True
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
            plain = kind.lstrip("*?")
            if plain in TYPES:
                made.type = TYPES[plain]
            else:
                made.type = _Field.TYPE_MESSAGE
                made.type_name = f".{package}{plain}" if plain.startswith(".") else f".{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages
    }
