"""What a listener's annotation says holds, or the declaration is refused by the listener's name."""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from pydantic import v1
from typing_extensions import TypedDict

import latermq
from latermq._worker.calls import shape_of
from latermq._worker.payloads import codec_for
from latermq.delivery import Delivery

attrs = pytest.importorskip("attrs")

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session


@dataclass
class Order:
    id: int
    price: float = 0.0


class Model(pydantic.BaseModel):
    a: int


class Old(v1.BaseModel):
    a: int = v1.Field(alias="theA")


@dataclass
class Wraps:
    p: Model


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


class Struct(msgspec.Struct):
    a: int


class Lost(pydantic.BaseModel):
    order_id: int = pydantic.Field(serialization_alias="orderId")


class Choices(pydantic.BaseModel):
    order_id: int = pydantic.Field(
        validation_alias=pydantic.AliasChoices("orderId", "id"), serialization_alias="orderId"
    )


class Hidden(pydantic.BaseModel):
    key: str = pydantic.Field(exclude=True)


class Kept(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int
    _seen: int = pydantic.PrivateAttr(0)


class Hooked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    then: Callable[[int], int]


class Row(TypedDict):
    line: Model


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
Even = Annotated[int, pydantic.AfterValidator(lambda n: n if n % 2 == 0 else 1 / 0)]


@dataclass
class Private:
    _a: int


@attrs.define
class PrivateAttrs:
    _a: int


@dataclass
class Given:
    a: int
    b: InitVar[int]


class Streamed(pydantic.BaseModel):
    numbers: Iterable[int]


class Kinds(pydantic.BaseModel):
    kind: type


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (Private, Private(1)),
        (dict[bool, int], {True: 1}),
        (dict[UUID, int], {UUID(int=7): 1}),
        (datetime, datetime(1, 1, 1, tzinfo=EAST)),
        (datetime, datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=2)))),
        (Wraps, Wraps(Model(a=1))),
        (Old, Old(theA=1)),
        (list[Model], [Model(a=1)]),
        (dict[str, list[Model] | None], {"x": [Model(a=1)], "y": None}),
        (Pet, Dog()),
        (list[Pet], [Cat(lives=3), Dog()]),
        (Row, {"line": Model(a=1)}),
        (Choices, Choices.model_validate({"orderId": 17})),
        (Kept, Kept.model_validate({"a": 1, "b": [2]})),
        (Annotated[Order, "a note"], Order(1)),
        (Annotated[list[int], pydantic.Field(min_length=1)], [1]),
        (Annotated[int, msgspec.Meta(gt=3)], 4),
        (Struct, Struct(1)),
    ],
)
def test_what_can_be_declared_can_be_sent(annotation: Any, payload: Any) -> None:
    codec = codec_for(annotation)
    assert codec.read(codec.body(payload), codec.content_type) == payload


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Lost, "order_id is written as orderId, and read as order_id"),
        (list[Lost] | None, "order_id is written as orderId"),
        (list[Old], "Old by pydantic.v1"),
        (tuple[Struct, Model], "Struct by msgspec, Model by pydantic"),
        (Annotated[Struct, pydantic.Field(description="x")], "by no one library"),
        (PrivateAttrs, "_a of PrivateAttrs is private"),
        (Hidden, "key is excluded from what is written, and has no default"),
        (Hooked, "then is no type of JSON"),
        (Callable[[int], int], "payloads of"),
        (list[type[int]], "payloads of"),
        (Given, "InitVar"),
        (list[Given | Model], "b is an InitVar, which is not written"),
        (Streamed, "numbers is no type of JSON"),
        (Iterable[int], "Iterable is no type of JSON"),
        (Kinds, "kind is no type of JSON"),
        (dict[tuple[int, int], str], "a tuple is no key of a JSON object"),
        (list[dict[frozenset[int], Model]], "a frozenset is no key of a JSON object"),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_is_declared(annotation: Any, why: str) -> None:
    def bill(order: Any) -> None: ...

    bill.__annotations__["order"] = annotation
    with pytest.raises(TypeError, match=f"bill: .*{why}"):
        shape_of(bill)


@pytest.mark.parametrize(
    ("annotation", "payload", "why"),
    [
        (Order, Order(1, math.nan), "payload.price, nan, cannot be sent"),
        (dict[str, float | None], {"x": math.inf}, r"payload\['x'\] is inf, and arrives as None"),
        (Order, Order("x"), r"Expected `int`, got `str` - at `\$.id`"),  # type: ignore[arg-type]
        (Order, Order(object()), "payload.id cannot be sent"),  # type: ignore[arg-type]
        (Annotated[int, pydantic.Field(gt=3)], 1, "greater than 3"),
        (Annotated[int, msgspec.Meta(gt=3)], 1, "> 3|>= 4"),
        (Even, 3, "ZeroDivisionError"),
        (str, "\ud800", "payload cannot be sent"),
    ],
)
def test_what_would_not_arrive_is_refused_by_its_name(
    annotation: Any, payload: Any, why: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        codec_for(annotation).body(payload)


def test_fields_that_equality_leaves_out_are_looked_at() -> None:
    kept = Kept(a=1)
    kept._seen = 3
    with pytest.raises(ValueError, match=r"payload\._seen is 3, and arrives as 0"):
        codec_for(Kept).body(kept)


@dataclass
class Unequal:
    a: int = 0
    b: int = field(default=0, init=False, compare=False)


@dataclass
class More(Order):
    note: str = ""


def test_a_payload_that_is_in_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for annotation in (list[Any], dict[str, Any]):
        with pytest.raises(ValueError, match="payload cannot be sent: RecursionError"):
            codec_for(annotation).body(loop if annotation == list[Any] else {"a": loop})


def test_subclasses_are_refused() -> None:
    with pytest.raises(ValueError, match="payload is a More, and arrives as a Order"):
        codec_for(Order).body(More(1))
    with pytest.raises(ValueError, match=r"payload\[1\] is a More"):
        codec_for(list[Order]).body([Order(1), More(2)])


async def test_a_function_whose_other_names_are_for_type_checkers() -> None:
    async def bill(order: "Order") -> "Session":
        raise NotImplementedError

    async def pay(order: "Session") -> None: ...

    assert shape_of(bill).codec is not None
    with pytest.raises(TypeError, match="pay: the annotation 'Session' of order cannot be"):
        shape_of(pay)


class Billing:
    async def __call__(self, order: Order, delivery: Delivery) -> None: ...

    async def method(self, order: Order) -> None: ...


async def _with(session: "Connection | int", order: Order, *, tax: int) -> None: ...


def test_partials_methods_and_callable_objects() -> None:
    app = latermq.App()
    partial = functools.partial(_with, 7, tax=19)
    functions: list[Any] = [Billing(), Billing().method, partial]
    made = [
        app.listener("orders", group=f"g{number}")(function)
        for number, function in enumerate(functions)
    ]
    assert [each.__name__ for each in made] == ["Billing", "method", "_with"]
    assert all(each.listening.shape.waits for each in made)
    assert [each.listening.shape.with_delivery for each in made] == [True, False, False]


def test_the_check_can_be_switched_off() -> None:
    app = latermq.App(check_payloads=False)

    @app.listener("orders", group="billing")
    async def bill(order: Order) -> None: ...

    assert bill.message(Order(1, math.nan)).body == b'{"id":1,"price":null}'
    with pytest.raises(TypeError, match="check_payloads must be a bool"):
        latermq.App(check_payloads=1)  # type: ignore[arg-type]


def test_a_schedule_is_refused_where_it_is_declared() -> None:
    app = latermq.App()
    with pytest.raises(ValueError, match=r"payload\.price, nan"):

        @app.every("1m", payload=Order(1, math.nan))
        @app.listener("orders", group="billing")
        async def bill(order: Order) -> None: ...
