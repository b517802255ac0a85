"""Messages of latermq.v1 as plain JSON values, for `--json`.

Keys are the .proto names and every field is always there, so that scripts need no defaults; what a
message may lack is null where it does. Enums
are lower-case words, instants stay milliseconds. Bytes are text where they are UTF-8; else the key
ends in `_base64`. The status is left out: a command prints JSON only when it was OK.
"""

import base64
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message


def jsonable(message: Message) -> dict[str, Any]:
    """Return all fields of a message but its status, as JSON values by name."""
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name == "status":
            continue
        value = getattr(message, field.name)
        if isinstance(value, bytes):
            shown.update(bytes_entry(field.name, value))
        elif isinstance(value, Message):
            shown[field.name] = jsonable(value) if message.HasField(field.name) else None
        elif field.has_presence and not message.HasField(field.name):
            shown[field.name] = None
        elif isinstance(value, Mapping):
            shown[field.name] = dict(value)
        elif isinstance(value, str | int | float):
            shown[field.name] = _scalar(field, value)
        else:  # a repeated field
            shown[field.name] = [
                jsonable(item) if isinstance(item, Message) else _scalar(field, item)
                for item in value
            ]
    return shown


def bytes_entry(name: str, value: bytes) -> dict[str, str]:
    """Make `{name: text}`, or `{name_base64: …}` for what is not text."""
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def _scalar(field: Any, value: str | int | float) -> str | int | float:
    if field.enum_type is None:
        return value
    named = field.enum_type.values_by_number.get(int(value))
    return str(named.name).lower() if named is not None else value
