"""What an annotation makes of bodies."""

import sys
from dataclasses import dataclass
from typing import Any, TypedDict

import pydantic
import pytest

from latermq._worker.payloads import JSON, PayloadError, codec_for


@dataclass
class Order:
    id: int
    customer: str = "?"


class Row(TypedDict):
    id: int


class Model(pydantic.BaseModel):
    id: int


class Early(pydantic.BaseModel):
    """A listener may stand above what its payload is made of."""

    lines: "list[Line]"


EARLY = codec_for(Early)


class Line(pydantic.BaseModel):
    sku: str


@pytest.mark.parametrize(
    ("annotation", "payload", "body"),
    [
        (bytes, b"\xff", b"\xff"),
        (str, "né", "né".encode()),
        (Order, Order(1, "ann"), b'{"id":1,"customer":"ann"}'),
        (Row, {"id": 1}, b'{"id":1}'),
        (Model, Model(id=1), b'{"id":1}'),
        (list[int], [1, 2], b"[1,2]"),
    ],
)
def test_a_payload_comes_back_as_it_was(annotation: Any, payload: Any, body: bytes) -> None:
    codec = codec_for(annotation)
    assert codec.encode(payload) == body
    assert codec.read(body, codec.content_type) == payload
    assert codec.read(body, None) == payload  # of a sender that says nothing


def test_what_a_payload_is_made_of_may_be_defined_later() -> None:
    early = Early(lines=[Line(sku="a")])
    body = EARLY.encode(early)
    assert body == b'{"lines":[{"sku":"a"}]}'
    assert EARLY.read(body, EARLY.content_type) == early


@pytest.mark.parametrize("annotation", [Order, Row, Model, str])
@pytest.mark.parametrize("body", [b"\xff", b'{"id": "x"}', b"{"])
def test_a_body_that_does_not_fit_is_refused(annotation: Any, body: bytes) -> None:
    if annotation is str and body != b"\xff":
        pytest.skip("any text fits")
    with pytest.raises(PayloadError, match="the payload does not fit: "):
        codec_for(annotation).read(body, None)


@pytest.mark.parametrize("annotation", [Order, Model])
def test_what_is_no_such_record_is_not_sent(annotation: Any) -> None:
    """It was, and was a dead letter then."""
    for payload in ({"id": 1}, None, Early(lines=[])):
        with pytest.raises(TypeError, match=f"payload must be of {annotation.__name__}, not"):
            codec_for(annotation).body(payload)


@dataclass
class Priced:
    what: str

    def __post_init__(self) -> None:
        {"tea": 350}[self.what]


@pytest.mark.parametrize(
    ("annotation", "body", "why"),
    [
        (Priced, b'{"what": "cake"}', "KeyError: 'cake'"),
        (list[Any], b"[" * 100_000, "RecursionError: "),
    ],
)
def test_what_the_type_itself_finds_is_no_fit_either(
    annotation: Any, body: bytes, why: str
) -> None:
    with pytest.raises(PayloadError, match=f"the payload does not fit: {why}"):
        codec_for(annotation).read(body, None)


def test_another_content_type_is_refused() -> None:
    codec = codec_for(Order)
    with pytest.raises(PayloadError, match="content type text/plain, and application/json"):
        codec.read(b'{"id":1}', "text/plain")
    assert codec.read(b'{"id":1}', "Application/JSON; charset=utf-8") == Order(1)
    assert codec_for(bytes).read(b"x", "image/png") == b"x"


def test_pydantic_reads_dataclasses_where_msgspec_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    codec = codec_for(Order)
    assert codec.content_type == JSON
    assert codec.read(codec.encode(Order(1)), JSON) == Order(1)


def test_without_either_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(TypeError, match=r"pip install 'latermq\[worker\]'"):
        codec_for(Order)
    assert codec_for(str).encode("x") == b"x"


def test_a_type_that_nothing_reads_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be read"):
        codec_for(type("Odd", (), {"__slots__": ("x",), "__annotations__": {}}) | int)
