"""For every type that can be declared: what is read of a body is what was sent, or it was refused.

Records are made of random fields by each library, filled with values that fit and values that do
not; a listener's codec either refuses the type, or refuses the value, or brings it as it was.
"""

import dataclasses
import enum
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import v1

from latermq._worker.payload_equal import difference
from latermq._worker.payloads import codec_for

attrs = pytest.importorskip("attrs")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Base:
    a: int = 0


@dataclasses.dataclass
class Sub(Base):
    b: str = ""


class Secret(pydantic.BaseModel):
    word: pydantic.SecretStr


class Tagged(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    order_id: int = pydantic.Field(alias="orderId")
    note: str = pydantic.Field("", exclude=True)
    _seen: int = pydantic.PrivateAttr(0)


BERLIN = ZoneInfo("Europe/Berlin")
FLOATS = st.floats() | st.sampled_from((float("nan"), float("inf"), -0.0))
MOMENTS = st.datetimes(timezones=st.sampled_from((UTC, BERLIN)), min_value=datetime(1901, 1, 1))
TAGGED = st.builds(Tagged, orderId=st.integers(0, 9), note=st.sampled_from(("", "gift")))
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, FLOATS),
    (str, st.text() | st.sampled_from(("\ud800", "\0", "né"))),
    (bytes, st.binary(max_size=9)),
    (bool, st.booleans()),
    (Decimal, st.decimals()),
    (datetime, MOMENTS | st.datetimes()),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Any, st.none() | st.integers() | st.tuples(st.integers()) | st.binary() | st.decimals()),
    (Base, st.builds(Base, st.integers(0, 9)) | st.builds(Sub, st.just(1), st.text())),
    (Secret, st.builds(Secret, word=st.text(max_size=3))),
    (Tagged, TAGGED),
    (typing.Annotated[int, pydantic.Field(gt=3)], st.integers(0, 9)),
    (typing.Annotated[int, msgspec.Meta(gt=3)], st.integers(0, 9)),
]
WRONG = st.sampled_from((None, "x", 1, True, 1.5, (1,), [1], {"a": 1}, {1: "a"}, object(), b"x"))


def _of(origin: Any, *parts: Any) -> Any:
    return origin[parts if len(parts) > 1 else parts[0]]


@st.composite
def fields(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw a type and its values, a few of which do not fit."""
    kind, values = draw(st.sampled_from(SCALARS))
    shape = draw(st.sampled_from(("one", "none", "list", "dict", "tuple", "set", "union")))
    if shape == "none":
        kind, values = kind | None if kind is not Any else kind, values | st.none()
    if shape == "list":
        kind, values = _of(list, kind), st.lists(values, max_size=3)
    if shape == "dict":
        kind, values = (
            _of(dict, str, kind),
            st.dictionaries(st.text(max_size=3), values, max_size=2),
        )
    if shape == "tuple":
        kind, values = _of(tuple, kind, int), st.tuples(values, st.integers(0, 9))
    if shape == "set" and kind in (int, str, Colour, date):
        kind, values = _of(set, kind), st.sets(values, max_size=3)
    if shape == "union" and kind is not Any:
        kind, values = kind | list[int], values | st.lists(st.integers(0, 9))
    return kind, st.one_of(values, values, values, WRONG)


def _dataclass(hints: dict[str, Any]) -> type[Any]:
    return dataclasses.make_dataclass("Made", hints.items())


def _struct(hints: dict[str, Any]) -> type[Any]:
    return msgspec.defstruct("Made", list(hints.items()))


def _attrs(hints: dict[str, Any]) -> type[Any]:
    made: type[Any] = attrs.make_class("Made", {n: attrs.field(type=h) for n, h in hints.items()})
    return made


def _made(library: Any, hints: dict[str, Any]) -> Any:
    return library.create_model("Made", **{name: (hint, ...) for name, hint in hints.items()})


def _model(hints: dict[str, Any]) -> type[Any]:
    made: type[Any] = _made(pydantic, hints)
    return made


def _old_model(hints: dict[str, Any]) -> type[Any]:
    made: type[Any] = _made(v1, hints)
    return made


def _typed_dict(hints: dict[str, Any]) -> type[Any]:
    return typing.TypedDict("Made", hints)  # type: ignore[operator, no-any-return]


MAKERS = [_dataclass, _struct, _attrs, _model, _old_model, _typed_dict]


@pytest.mark.parametrize("make", MAKERS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_sent_arrives_or_is_refused(
    make: Callable[[dict[str, Any]], type[Any]], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(fields(), min_size=1, max_size=3))
    hints = {f"f{number}": kind for number, (kind, _) in enumerate(drawn)}
    given = {f"f{number}": data.draw(values) for number, (_, values) in enumerate(drawn)}
    try:
        kind = make(hints)
        payload = kind(**given)
    except (TypeError, ValueError, RuntimeError, UserWarning):  # the library's own refusal
        return
    try:
        codec = codec_for(kind)
    except TypeError:
        return
    try:
        body = codec.body(payload)
    except (TypeError, ValueError) as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "payload" in refused
        return
    assert difference(payload, codec.read(body, codec.content_type)) == ""


@given(data=st.data())
def test_containers_of_records_arrive_or_are_refused(data: st.DataObject) -> None:
    kind, values = data.draw(fields())
    payload = data.draw(values)
    try:
        codec = codec_for(kind)
        body = codec.body(payload)
    except (TypeError, ValueError):
        return
    assert difference(payload, codec.read(body, codec.content_type)) == ""
