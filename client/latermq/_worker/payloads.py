"""What a listener's parameter says about its messages: how a body is read, and how it is written.

    bytes       the body itself
    str         UTF-8, content type text/plain
    else        JSON, content type application/json, by the library that the type needs: msgspec, or
                pydantic for what has models or constraints of pydantic in it; a model of pydantic 1
                by itself; dataclasses and TypedDicts by msgspec, or pydantic without it

What is sent is read again before it leaves: it arrives equal, or it is refused by the field's name.
The content type travels in the message's property `content-type`.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from latermq._values.arguments import wrong
from latermq._values.failure import class_name_of, text_of
from latermq._worker.payload_equal import difference, leaves
from latermq._worker.payload_types import (
    MSGSPEC,
    PYDANTIC,
    PYDANTIC_1,
    is_pydantic_1,
    libraries_of,
)

Payload = TypeVar("Payload")

CONTENT_TYPE: Final = "content-type"
TEXT: Final = "text/plain"
JSON: Final = "application/json"
EXTRA: Final = "pip install 'latermq[worker]'"
NO_JSON: Final = ("callable", "is-subclass", "is-instance", "generator")
NO_KEYS: Final = (
    "tuple", "list", "set", "frozenset", "dict", "model", "dataclass", "typed-dict", "none",
)  # fmt: skip
# Parts of a schema of pydantic that say nothing of how JSON is read.
NOT_OF_JSON: Final = (
    "metadata",
    "ref",
    "serialization",
    "python_schema",
    "strict_schema",
    "default",
)


class PayloadError(ValueError):
    """A body that is not what the listener says it takes; trying again would not help."""


class Codec(NamedTuple, Generic[Payload]):
    """How payloads of one type become bodies, and back.

    Fields:
        content_type: "" for bytes, which may be anything.
        decode: raises for a body that does not fit: msgspec and pydantic a ValueError, what the
            type itself checks whatever it likes, and JSON that is too deep a RecursionError.
        kind: the class of what is sent, where that is a record's; None: encode finds out.
    """

    content_type: str
    encode: Callable[[Payload], bytes]
    decode: Callable[[bytes], Payload]
    kind: type[Any] | None = None

    def body(self, payload: Payload, *, check: bool = True) -> bytes:
        """Encode what is sent.

        Args:
            check: read the body again, as the receiver will; False: only the class is looked at.
        Raises:
            TypeError: it is no such payload, or cannot be encoded.
            ValueError: it would not be read, or something else would be; the field is named.
        """
        if self.kind is not None and not isinstance(payload, self.kind):
            raise wrong("payload", f"of {self.kind.__name__}", payload)
        try:
            body = self.encode(payload)
        except Exception as error:
            if not check or isinstance(error, MemoryError):
                raise
            raise _blamed(error)(
                f"{_culprit(self, payload)} cannot be sent: {_why(error)}"
            ) from error
        if check and body is not payload:
            self._check(payload, body)
        return body

    def _check(self, payload: Payload, body: bytes) -> None:
        try:
            arrived = self.decode(body)
        except MemoryError:
            raise
        except Exception as error:
            text = (
                f"{_culprit(self, payload)} cannot be sent, for it would not be read: {_why(error)}"
            )
            raise ValueError(text) from error
        if differs := difference(payload, arrived):
            raise ValueError(f"what is sent would not arrive: {differs}")

    def read(self, body: bytes, content_type: str | None) -> Payload:
        """Decode a body that says it is of `content_type`; None where it says nothing.

        Raises:
            PayloadError: it is of another content type, or does not fit.
        """
        given = (content_type or self.content_type).partition(";")[0].strip().lower()
        if self.content_type and given != self.content_type:
            raise PayloadError(f"content type {given}, and {self.content_type} is listened for")
        try:
            return self.decode(body)
        except (MemoryError, OSError):
            raise  # they say nothing of the body
        except Exception as error:
            raise PayloadError(f"the payload does not fit: {_why(error)}") from error


def _why(error: Exception) -> str:
    known = issubclass(type(error), ValueError | TypeError)
    return text_of(error) if known else f"{class_name_of(error)}: {text_of(error)}"


def _blamed(error: Exception) -> type[TypeError] | type[ValueError]:
    return TypeError if issubclass(type(error), TypeError) else ValueError


def _culprit(codec: Codec[Any], payload: Any) -> str:
    """Name the part that JSON cannot hold; the payload, where each part by itself can be held."""
    try:
        return _part_refused(codec, payload)
    except RecursionError:
        return "payload"


def _part_refused(codec: Codec[Any], payload: Any) -> str:
    for name, part in leaves(payload):
        if isinstance(part, float) and not math.isfinite(part):
            return f"{name}, {part},"
        with warnings.catch_warnings():  # pydantic's, of what is no whole payload
            warnings.simplefilter("ignore")
            try:
                codec.encode(part)
            except Exception:  # noqa: BLE001  this is the one
                return name
    return "payload"


def codec_for(annotation: Any) -> Codec[Any]:
    """Choose how payloads of the annotated type travel.

    Raises:
        TypeError: neither bytes nor str, and nothing installed can read and write it: parts of it
            are of two libraries, or are written otherwise than they are read.
    """
    if annotation is bytes:
        return Codec("", _unchanged, _unchanged, bytes)
    if annotation is str:
        return Codec(TEXT, str.encode, bytes.decode, str)
    if is_pydantic_1(annotation):
        return _of_pydantic_1(annotation)
    needed = libraries_of(annotation)
    if len(needed) > 1 or PYDANTIC_1 in needed:
        parts = ", ".join(f"{part} by {library}" for library, part in needed.items())
        raise TypeError(f"payloads of {annotation!r} are read by no one library: {parts}")
    makers = {MSGSPEC: _of_msgspec, PYDANTIC: _of_pydantic}
    refused: TypeError | None = None
    for library in needed or makers:
        try:
            return makers[library](annotation)
        except ModuleNotFoundError:
            pass
        except TypeError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    named = " or ".join(needed or makers)
    raise TypeError(f"payloads of {annotation!r} need {named}: {EXTRA}")


def _kind_of(annotation: Any) -> type[Any] | None:
    marks = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "__pydantic_fields__")
    is_record = isinstance(annotation, type) and any(hasattr(annotation, each) for each in marks)
    return annotation if is_record else None


def _unchanged(body: bytes) -> bytes:
    return body


def _of_msgspec(annotation: Any) -> Codec[Any]:
    import msgspec  # an extra

    try:
        decoder = msgspec.json.Decoder(annotation)
        unknown = _unknown_to_msgspec(annotation)
    except (TypeError, NameError) as error:
        raise TypeError(f"payloads of {annotation!r} cannot be read: {error}") from error
    if unknown:
        raise TypeError(f"payloads of {annotation!r} cannot be sent: {unknown}")
    return Codec(JSON, msgspec.json.Encoder().encode, decoder.decode, _kind_of(annotation))


def _unknown_to_msgspec(annotation: Any) -> str:
    """Name a part that msgspec does not write, and reads only if it is told how: a type that it
    does not know, a key that is no scalar, or a required field of a dataclass that is private; "":
    there is none."""
    import msgspec.inspect

    unknown: list[str] = []
    types = msgspec.inspect
    no_keys = (
        types.BoolType, types.NoneType, types.CollectionType, types.TupleType, types.DictType,
        types.NamedTupleType, types.StructType, types.DataclassType, types.TypedDictType,
    )  # fmt: skip

    def look(part: Any) -> None:
        if isinstance(part, msgspec.inspect.CustomType):
            unknown.append(f"{getattr(part.cls, '__qualname__', part.cls)} is no type of JSON")
        if isinstance(part, msgspec.inspect.DictType) and isinstance(part.key_type, no_keys):
            kind = type(part.key_type).__name__.removesuffix("Type").lower()
            unknown.append(f"a {kind} is no key of a JSON object")
        if isinstance(part, msgspec.inspect.DataclassType):
            private = (f.name for f in part.fields if f.required and f.name.startswith("_"))
            unknown.extend(f"{name} of {part.cls.__qualname__} is private" for name in private)
        if isinstance(part, tuple):
            for each in part:
                look(each)
        elif id(part) not in seen and isinstance(
            part, msgspec.inspect.Type | msgspec.inspect.Field
        ):
            seen.add(id(part))
            for name in part.__struct_fields__:
                look(getattr(part, name))

    seen = set[int]()
    root = msgspec.inspect.type_info(annotation)
    look(root)
    return next(iter(unknown), "")


def _of_pydantic(annotation: Any) -> Codec[Any]:
    import pydantic  # an extra
    import pydantic_core

    try:
        adapter = pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"payloads of {annotation!r} cannot be read: {error}") from error
    version = tuple(map(int, pydantic.version.version_short().split(".")))
    by_name = version >= (2, 11)
    by_alias: dict[str, Any] = {"by_alias": True, "by_name": True} if by_name else {}

    def decode(body: bytes) -> Any:
        return adapter.validate_json(body, **by_alias)

    def encode(payload: Any) -> bytes:  # what is of another type is refused by who reads it back
        return adapter.dump_json(payload, by_alias=True, round_trip=True, warnings="none")

    # A type whose parts are not all defined yet is looked at when it is sent.
    if isinstance(adapter.serializer, pydantic_core.SchemaSerializer):
        if wrong_field := _one_way(adapter.core_schema, by_name=by_name):
            raise TypeError(f"payloads of {annotation!r} would not arrive: {wrong_field}")
        to_json = adapter.serializer.to_json
        if by_name:  # what `dump_json` calls, with 16 arguments by name: four times the cost

            def encode(payload: Any) -> bytes:
                return to_json(payload, by_alias=True, round_trip=True, warnings="none")

    return Codec(JSON, encode, decode, _kind_of(annotation))


def _one_way(schema: Any, *, by_name: bool) -> str:
    """Name a field of a model that is written otherwise than it is read; "": there is none."""
    for name, field in _fields(schema):
        if field.get("serialization_exclude") and _is_required(field):
            return f"{name} is excluded from what is written, and has no default"
        if field.get("init_only") and _is_required(field):
            return f"{name} is an InitVar, which is not written, and has no default"
        written = field.get("serialization_alias") or name
        given = field.get("validation_alias")
        read = _names_read(given) | ({name} if by_name or given is None else set())
        if written not in read and not field.get("serialization_exclude"):
            return f"{name} is written as {written}, and read as {', '.join(sorted(read))}"
        if _inner(field["schema"]).get("type") in NO_JSON:
            return f"{name} is no type of JSON"
    for part in _schemas(schema):
        kind = part.get("type")
        if kind in NO_JSON and (kind != "is-instance" or part is schema):
            return f"a part ({kind}) is no type of JSON"
        if kind == "dict" and part.get("keys_schema", {}).get("type") in NO_KEYS:
            return f"a {part['keys_schema']['type']} is no key of a JSON object"
    return ""


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a schema that say how JSON is read."""
    rest = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, list | tuple):
            rest += part
        elif isinstance(part, dict):
            yield part
            rest += (each for key, each in part.items() if key not in NOT_OF_JSON)


def _fields(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in _schemas(schema):
        fields = part.get("fields")
        if isinstance(fields, dict):
            yield from fields.items()
        elif isinstance(fields, list):
            yield from ((each["name"], each) for each in fields if "name" in each)


def _names_read(alias: Any) -> set[str]:
    """Return the names at the top of a record that an alias, a path or choices of them read."""
    if alias is None:
        return set()
    if isinstance(alias, str):
        return {alias}
    if all(isinstance(each, str | int) for each in alias):
        return {alias[0]} if len(alias) == 1 else set()
    return set[str]().union(*map(_names_read, alias))


def _is_required(field: Mapping[str, Any]) -> bool:
    return bool(_inner(field["schema"], "nullable").get("type") != "default")


def _inner(schema: Any, *through: str) -> Any:
    while schema.get("type") in (through or ("default", "nullable", "custom-error")):
        schema = schema["schema"]
    return schema


def _of_pydantic_1(kind: Any) -> Codec[Any]:
    def encode(payload: Any) -> bytes:
        text: str = payload.json(by_alias=True, allow_nan=False)
        return text.encode()

    return Codec(JSON, encode, kind.parse_raw, kind)
