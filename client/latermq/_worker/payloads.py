"""What a listener's parameter says about its messages: how a body is read, and how it is written.

    bytes       the body itself
    str         UTF-8, content type text/plain
    else        JSON, content type application/json: pydantic for its own models, otherwise msgspec,
                or pydantic where msgspec is not installed

The content type travels in the message's property `content-type`.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from latermq._values.arguments import wrong
from latermq._values.failure import text_of

Payload = TypeVar("Payload")

CONTENT_TYPE: Final = "content-type"
TEXT: Final = "text/plain"
JSON: Final = "application/json"
EXTRA: Final = "pip install 'latermq[worker]'"


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

    def body(self, payload: Payload) -> bytes:
        """Encode what is sent. Raises TypeError: it is no such payload, and would be read by
        nobody."""
        if self.kind is not None and not isinstance(payload, self.kind):
            raise wrong("payload", f"of {self.kind.__name__}", payload)
        return self.encode(payload)

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
            known = isinstance(error, ValueError | TypeError)
            why = str(error) if known else f"{type(error).__name__}: {text_of(error)}"
            raise PayloadError(f"the payload does not fit: {why}") from error


def codec_for(annotation: Any) -> Codec[Any]:
    """Choose how payloads of the annotated type travel.

    Raises:
        TypeError: neither bytes nor str, and nothing installed can read it.
    """
    if annotation is bytes:
        return Codec("", _unchanged, _unchanged)
    if annotation is str:
        return Codec(TEXT, str.encode, bytes.decode)
    if hasattr(annotation, "__pydantic_validator__"):
        return _of_pydantic(annotation)
    try:
        return _of_msgspec(annotation)
    except ModuleNotFoundError:
        pass
    try:
        return _of_pydantic(annotation)
    except ModuleNotFoundError:
        raise TypeError(f"payloads of {annotation!r} need msgspec or pydantic: {EXTRA}") from None


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
    except TypeError as error:
        raise TypeError(f"payloads of {annotation!r} cannot be read: {error}") from error
    return Codec(JSON, msgspec.json.Encoder().encode, decoder.decode, _kind_of(annotation))


def _of_pydantic(annotation: Any) -> Codec[Any]:
    import pydantic  # an extra
    import pydantic_core

    try:
        adapter = pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"payloads of {annotation!r} cannot be read: {error}") from error
    encode: Callable[[Any], bytes] = adapter.dump_json
    version = tuple(map(int, pydantic.version.version_short().split(".")))
    # What `dump_json` calls, with 16 arguments by name: four times the cost. Not of a type whose
    # parts are not all defined yet, nor where aliases have another default.
    if isinstance(adapter.serializer, pydantic_core.SchemaSerializer) and version >= (2, 11):
        encode = adapter.serializer.to_json
    return Codec(JSON, encode, adapter.validate_json, _kind_of(annotation))
