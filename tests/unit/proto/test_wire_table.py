"""Our .proto files against a table of the protocol: every message, field, enum and call.

The table was derived once from the published protocol. A field is `[number, name, type, label,
oneof]`; the labels are single (implicit presence), optional (explicit presence), repeated, map.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from latermq_proto.apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2

TABLE: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "wire_table.json").read_text(encoding="utf-8")
)
FILES: Final[dict[str, FileDescriptor]] = {
    "definition": definition_pb2.DESCRIPTOR,
    "service": service_pb2.DESCRIPTOR,
    "admin": admin_pb2.DESCRIPTOR,
}
SCALARS: Final = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_STRING: "string",
}


def short(full_name: str) -> str:
    return full_name.removeprefix(TABLE["package"] + ".")


def type_of(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return f"enum {short(field.enum_type.full_name)}"
    if field.message_type is None:
        return SCALARS[field.type]
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{type_of(key)},{type_of(value)}>"
    return short(field.message_type.full_name)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def label_of(field: FieldDescriptor) -> str:
    if is_map(field):
        return "map"
    if field.is_repeated:
        return "repeated"
    oneof = field.containing_oneof
    # proto3 spells `optional` as a oneof of one, named after its field.
    return "optional" if oneof is not None and oneof.name == f"_{field.name}" else "single"


def oneof_of(field: FieldDescriptor) -> str:
    oneof = field.containing_oneof
    return oneof.name if oneof is not None and label_of(field) != "optional" else ""


def messages_of(file: FileDescriptor) -> dict[str, Descriptor]:
    found: dict[str, Descriptor] = {}
    waiting = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        if not message.GetOptions().map_entry:
            found[short(message.full_name)] = message
            waiting.extend(message.nested_types)
    return found


@pytest.mark.parametrize("file", FILES)
def test_messages_and_fields(file: str) -> None:
    ours = {
        name: sorted(
            [field.number, field.name, type_of(field), label_of(field), oneof_of(field)]
            for field in message.fields
        )
        for name, message in messages_of(FILES[file]).items()
    }
    expected = {
        name: sorted(message["fields"])
        for name, message in TABLE["messages"].items()
        if message["file"] == file
    }
    assert ours == expected


@pytest.mark.parametrize("file", FILES)
def test_enums(file: str) -> None:
    enums = list(FILES[file].enum_types_by_name.values())
    for message in messages_of(FILES[file]).values():
        enums.extend(message.enum_types)
    ours = {
        short(enum.full_name): {value.name: value.number for value in enum.values} for enum in enums
    }
    expected = {
        name: enum["values"] for name, enum in TABLE["enums"].items() if enum["file"] == file
    }
    assert ours == expected


@pytest.mark.parametrize("file", FILES)
def test_calls(file: str) -> None:
    ours = {
        name: [
            [
                method.name,
                short(method.input_type.full_name),
                short(method.output_type.full_name),
                method.client_streaming,
                method.server_streaming,
            ]
            for method in service.methods
        ]
        for name, service in FILES[file].services_by_name.items()
    }
    expected = {
        name: service["methods"]
        for name, service in TABLE["services"].items()
        if service["file"] == file
    }
    assert ours == expected
