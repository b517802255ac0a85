"""Any exception can be told: whatever of its class raises while it is described."""

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq._values.endpoints import Endpoints
from latermq._values.failure import describe, exc_info, rejection, text_of
from latermq._wire.messages import Arrival
from latermq._worker.verdicts import Judge, Rules
from latermq.backoff import fits_kind, parts_of
from latermq.delivery import Delivery, Outcome, Settler
from latermq.message import Received

ENDPOINTS: Final = Endpoints.parse("broker:1")
RECEIVED: Final = Received(
    topic="orders", body=b"x", message_id="m1", attempt=1, born_at=datetime.now(UTC)
)

RAISED = (KeyError, AttributeError, RecursionError, SystemExit, KeyboardInterrupt, GeneratorExit)
HOOKS = (
    "__str__", "__repr__", "__getattr__", "__getattribute__", "__notes__", "__class__", "__cause__",
    "__context__", "__traceback__", "__suppress_context__", "__dir__", "text", "lineno", "filename",
    "exceptions", "message", "name", "retry_in",
)  # fmt: skip
FIELDS = ("text", "lineno", "filename", "offset", "end_lineno", "__notes__", "retry_in", "name")
ODD = (5, -1, 2**70, "", "\ud800", b"x", None, object(), [object()], float("nan"), ("a", 1))


def _hook(name: str, raised: type[BaseException]) -> Any:
    def fail(*_: object) -> Any:
        raise raised(name)

    read = name == "__class__" or name not in vars(object) | {"__getattr__": 0}
    return property(fail) if read else fail


@st.composite
def exceptions(draw: st.DrawFn) -> BaseException:
    """Draw an error of a class that is odd in several ways, alone, caused by one, or in a group."""
    base = draw(st.sampled_from((Exception, SyntaxError, NameError, KeyError, OSError, ValueError)))
    hooks = draw(st.sets(st.sampled_from(HOOKS), max_size=4))
    members = {name: _hook(name, draw(st.sampled_from(RAISED))) for name in hooks}
    error: BaseException = type("Odd", (base,), members)(draw(st.sampled_from(ODD)))
    for name in draw(st.sets(st.sampled_from(FIELDS), max_size=3)):
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            setattr(error, name, draw(st.sampled_from(ODD)))
    wrap = draw(st.sampled_from(("alone", "cause", "group")))
    if wrap == "cause":
        outer = ValueError("outer")
        outer.__cause__ = error
        return outer
    if wrap == "group":
        return ExceptionGroup("several", [error, ValueError("plain")])  # type: ignore[type-var]
    return error


def raised(error: BaseException) -> BaseException:
    """Return the error with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001  whatever it is
        return caught


@given(exceptions())
def test_every_exception_is_described(error: BaseException) -> None:
    failure = describe(raised(error))
    assert failure.class_name == type(error).__qualname__
    assert len(failure.stack_hash) == 16
    assert failure.class_name in failure.stack
    assert rejection("why", error).rejected
    assert isinstance(text_of(error), str)


@given(exceptions())
def test_every_exception_can_be_logged(error: BaseException) -> None:
    shown = exc_info(raised(error))
    text = logging.Formatter().formatException(shown)
    assert type(error).__qualname__ in text
    assert traceback.format_exception(*shown)


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Surrogates in captured lines would end an xdist worker, which sends them on."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Ends:
    """A settler that notes what a delivery's block ended with."""

    def __init__(self) -> None:
        self.told: list[BaseException | None] = []

    async def end(self, delivery: Delivery, error: Exception | None) -> None:
        self.told.append(error)


@given(exceptions())
def test_every_exception_ends_its_delivery(error: BaseException) -> None:
    async def block() -> None:
        async with Delivery(Arrival(RECEIVED, "handle", ""), ENDPOINTS, cast(Settler, ends)):
            raise error

    ends = Ends()
    asyncio.run(block())
    assert ends.told[0] is error
    assert len(ends.told) == 1


@given(exceptions(), st.sampled_from(("give_back_on", "dead_letter_on", "retry_on")))
def test_every_exception_is_judged(error: Exception, rule: str) -> None:
    kinds: Any = {rule: LookupError}
    verdict = Judge(Rules(**kinds)).verdict
    fits = [fits_kind(part, LookupError) for part in parts_of(error)]
    if rule == "dead_letter_on":
        assert verdict(error).outcome is (Outcome.DEAD_LETTERED if any(fits) else Outcome.FAILED)
    if rule == "retry_on":
        assert verdict(error).outcome is (Outcome.FAILED if all(fits) else Outcome.DEAD_LETTERED)
