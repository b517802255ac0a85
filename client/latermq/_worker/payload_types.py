"""Which library reads and writes payloads of an annotated type, by what the type is made of.

msgspec ignores constraints of pydantic, pydantic those of msgspec, and neither knows the other's
records: a type is walked through all its fields, and one library has to know every part of it.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints

MSGSPEC: Final = "msgspec"
PYDANTIC: Final = "pydantic"
PYDANTIC_1: Final = "pydantic.v1"
# By the module of an `Annotated` constraint, and of what it is made by.
CONSTRAINTS: Final = {
    "pydantic": PYDANTIC, "pydantic_core": PYDANTIC, "annotated_types": PYDANTIC,
    "msgspec": MSGSPEC,
}  # fmt: skip


def library_of(part: Any) -> str | None:
    """Return the library that a record or a constraint belongs to; None: any reads it."""
    if isinstance(part, type):
        if hasattr(part, "__pydantic_validator__"):
            return PYDANTIC
        if is_pydantic_1(part):
            return PYDANTIC_1
        if hasattr(part, "__struct_fields__") or hasattr(part, "__attrs_attrs__"):
            return MSGSPEC
    if hasattr(part, "__get_pydantic_core_schema__"):
        return PYDANTIC
    return None


def is_pydantic_1(kind: Any) -> bool:
    """Tell whether it is a model of pydantic 1, or of pydantic.v1."""
    if not isinstance(kind, type) or hasattr(kind, "__pydantic_validator__"):
        return False
    return "__fields__" in vars(kind) and hasattr(kind, "parse_raw")


def libraries_of(annotation: Any) -> Mapping[str, str]:
    """Return the libraries that parts of a type need, each with the name of one such part."""
    needed: dict[str, str] = {}
    for part, is_constraint in _parts(annotation, {}):
        library = library_of(part)
        if library is None and is_constraint:
            module = getattr(part if isinstance(part, type) else type(part), "__module__", "")
            library = CONSTRAINTS.get(str(module).partition(".")[0])
        if library is not None:
            needed.setdefault(library, _name(part))
    return needed


def _name(part: Any) -> str:
    return str(getattr(part, "__qualname__", None) or repr(part))


def _parts(annotation: Any, seen: dict[int, Any]) -> Iterator[tuple[Any, bool]]:
    """Yield the types that a type is made of, and their constraints: True."""
    if id(annotation) in seen:
        return
    seen[id(annotation)] = annotation  # held: another one would get its id
    for constraint in getattr(annotation, "__metadata__", ()):
        yield constraint, True
    inner = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
    if inner is not None and not isinstance(annotation, type):  # NewType, `type X = …`
        yield from _parts(inner, seen)
    origin = get_origin(annotation)
    for each in get_args(annotation) if origin is not typing.Literal else ():
        if not isinstance(each, str | int | bytes):
            yield from _parts(each, seen)
    if origin is not None and origin is not typing.Annotated:
        yield from _parts(origin, seen)
    if isinstance(annotation, type):
        yield annotation, False
        if library_of(annotation) != PYDANTIC and _is_record(annotation):
            for hint in _hints(annotation).values():
                yield from _parts(hint, seen)


def _is_record(kind: type[Any]) -> bool:
    marks = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "__total__", "_fields")
    return any(hasattr(kind, mark) for mark in marks)


def _hints(kind: type[Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # what it is made of may be defined later
        return {}


# What a function says of its parameters ---------------------------------------------------------


def name_of(function: Callable[..., Any]) -> str:
    """Return what a function, a partial of one, or a callable object is called."""
    inner = innermost(function)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def innermost(function: Any) -> Any:
    """Return the function that a `functools.partial` calls."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    return function


def called(function: Callable[..., Any]) -> Any:
    """Return the function whose code runs: a callable object's `__call__`."""
    inner = innermost(function)
    if inspect.isroutine(inner) or isinstance(inner, type):
        return inner
    return getattr(inner, "__call__", inner)  # noqa: B004  it is asked for its code


def annotation_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Evaluate what one parameter is annotated with; None: with nothing.

    The others may name what is imported for type checkers only.

    Raises:
        TypeError: it names what is not there.
    """
    given = parameter.annotation
    if given is inspect.Parameter.empty:
        return None
    try:
        hints = get_type_hints(_Holder(given, _names_of(function)), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise TypeError(
            f"{name_of(function)}: the annotation {given!r} of {parameter.name} cannot be "
            f"evaluated: {error}"
        ) from error
    return hints["it"]


class _Holder:
    """One annotation in the form that `get_type_hints` reads."""

    def __init__(self, given: Any, names: Mapping[str, Any]) -> None:
        self.__annotations__ = {"it": given}
        self.__globals__ = names


def _names_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the names that a function's annotations may use: of its module and its closure."""
    code = inspect.unwrap(called(function))
    code = getattr(code, "__func__", code)
    module = sys.modules.get(getattr(code, "__module__", None) or "")
    names = dict(getattr(code, "__globals__", None) or vars(module or typing))
    cells = getattr(code, "__closure__", None) or ()
    free = getattr(getattr(code, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, cells, strict=False):
        try:
            names.setdefault(name, cell.cell_contents)
        except ValueError:
            continue  # it is empty yet
    return names
