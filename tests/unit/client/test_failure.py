"""What the broker is told about an exception."""

import textwrap
from collections.abc import Callable
from typing import Any

from latermq._values.failure import (
    CLASS_BYTES_MAX,
    STACK_BYTES_MAX,
    TEXT_BYTES_MAX,
    Failure,
    describe,
    rejection,
)


def caught(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:  # noqa: BLE001  whatever it raises
        return error
    raise AssertionError("it did not fail")


def compiled(source: str) -> Callable[[], object]:
    space: dict[str, Any] = {}
    exec(compile(textwrap.dedent(source), "billing.py", "exec"), space)
    function: Callable[[], object] = space["bill"]
    return function


def test_class_text_and_stack() -> None:
    failure = describe(caught(compiled("def bill():\n    raise TimeoutError('bank')\n")))
    assert (failure.class_name, failure.text) == ("TimeoutError", "bank")
    assert 'File "billing.py", line 2, in bill' in failure.stack
    assert failure.stack.rstrip().endswith("TimeoutError: bank")
    assert not failure.rejected


def test_the_hash_knows_the_place_but_not_the_line() -> None:
    here = describe(caught(compiled("def bill():\n    raise TimeoutError('a')\n")))
    moved = describe(caught(compiled("\n\n\ndef bill():\n    raise TimeoutError('b')\n")))
    other = describe(caught(compiled("def bill():\n    raise KeyError('a')\n")))
    deeper = describe(
        caught(compiled("def bill():\n    def pay(): raise TimeoutError('a')\n    pay()\n"))
    )
    assert len(here.stack_hash) == 16
    assert int(here.stack_hash, 16) >= 0
    assert here.stack_hash == moved.stack_hash
    assert len({here.stack_hash, other.stack_hash, deeper.stack_hash}) == 3


def test_everything_fits_a_header() -> None:
    kind = type("Ä" * 400, (Exception,), {})
    failure = describe(kind("ü" * 5000))
    sizes = [len(text.encode()) for text in (failure.class_name, failure.text, failure.stack)]
    limits = [CLASS_BYTES_MAX, TEXT_BYTES_MAX, STACK_BYTES_MAX]
    # A cut inside a character costs the rest of it.
    assert all(limit - 1 <= size <= limit for size, limit in zip(sizes, limits, strict=True))


def test_a_long_stack_keeps_its_end() -> None:
    source = "def bill(n=300):\n    if n % 2: return bill(n - 1)\n    return bill2(n)\n"
    source += "def bill2(n):\n    if not n: raise ValueError('the end')\n    return bill(n - 1)\n"
    failure = describe(caught(compiled(source)))
    assert failure.stack.endswith("ValueError: the end\n")


def test_a_text_that_is_not_unicode() -> None:
    assert describe(ValueError("\ud800")).text == "?"


def test_rejection() -> None:
    assert rejection("no such customer") == Failure("Rejected", "no such customer", rejected=True)


def test_rejection_with_its_cause() -> None:
    failure = rejection("no such customer", caught(lambda: dict[str, str]()["x"]))
    assert (failure.class_name, failure.text, failure.rejected) == (
        "KeyError",
        "no such customer",
        True,
    )
    assert "KeyError: 'x'" in failure.stack


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_an_exception_that_cannot_say_what_it_is() -> None:
    failure = describe(Mute())
    assert (failure.class_name, failure.text) == ("Mute", "<exception str() failed>")
