"""Whether a payload arrives as it was sent: compared part by part, so that the part is named."""

import math
import reprlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

_ABSENT: Final = object()
_PLAIN: Final = frozenset((int, str, bytes, bool))  # `==` says all of these
_CONTAINERS: Final = frozenset((list, tuple, dict, set))
_MARKS: Final = (
    "__pydantic_fields__", "__struct_fields__", "__dataclass_fields__", "__fields__",
)  # fmt: skip


def difference(sent: Any, got: Any, path: str = "payload") -> str:
    """Return what of `sent` is another in `got`, by the name of its field; "": they are equal.

    Fields count that `==` leaves out; NaN is equal to itself, and an aware datetime to the same
    instant in another zone.
    """
    if _plainly_equal(sent, got):
        return ""
    kind = type(sent)
    names = None if kind in _CONTAINERS else _names(kind)
    if names is not None:
        if type(got) is not kind:
            return f"{path} is a {type(sent).__qualname__}, and arrives as {_kind(got)}"
        for name in names:
            mine, theirs = getattr(sent, name, _ABSENT), getattr(got, name, _ABSENT)
            if not _plainly_equal(mine, theirs) and (
                unlike := difference(mine, theirs, f"{path}.{name}")
            ):
                return unlike
        return _hidden(sent, got, path)
    if isinstance(sent, Mapping) and isinstance(got, Mapping):
        return _of_mappings(sent, got, path)
    for several in (list, tuple):
        if isinstance(sent, several) and isinstance(got, several):
            if len(sent) != len(got):
                return f"{path} has {len(sent)} items, and arrives with {len(got)}"
            pairs = enumerate(zip(sent, got, strict=True))
            return _first(
                difference(a, b, f"{path}[{at}]")
                for at, (a, b) in pairs
                if not _plainly_equal(a, b)
            )
    if _same(sent, got):
        return ""
    return f"{path} is {_shown(sent)}, and arrives as {_shown(got)}"


def _plainly_equal(sent: Any, got: Any) -> bool:
    kind = type(sent)
    return sent is got or (kind in _PLAIN and kind is type(got) and bool(sent == got))


def leaves(value: Any, path: str = "payload") -> Iterator[tuple[str, Any]]:
    """Yield the parts of a payload that have no parts, each with its name, depth first.

    Raises RecursionError: it is in itself.
    """
    names = _names(type(value))
    if names is not None:
        children = [(f"{path}.{n}", getattr(value, n, None)) for n in names]
    elif isinstance(value, Mapping):
        children = [(f"{path}[{key!r}]", each) for key, each in value.items()]
    elif isinstance(value, list | tuple | AbstractSet):
        children = [(f"{path}[{at}]", each) for at, each in enumerate(value)]
    else:
        yield path, value
        return
    for name, child in children:
        yield from leaves(child, name)


def _first(unlike: Iterator[str]) -> str:
    return next(filter(None, unlike), "")


def _names(kind: type[Any]) -> list[str] | None:
    """Return the names of a record's fields; None: it is none."""
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return [each.name for each in attributes]
    for mark in _MARKS:
        fields = getattr(kind, mark, None)
        if isinstance(fields, Mapping | tuple):
            return list(fields)
    return None


def _hidden(sent: Any, got: Any, path: str) -> str:
    """Compare what a model of pydantic has beside its fields."""
    for mark in ("__pydantic_extra__", "__pydantic_private__"):
        mine, theirs = getattr(sent, mark, None) or {}, getattr(got, mark, None) or {}
        unlike = _first(
            difference(value, theirs.get(name, _ABSENT), f"{path}.{name}")
            for name, value in mine.items()
        )
        if unlike:
            return unlike
    return ""


def _of_mappings(sent: Mapping[Any, Any], got: Mapping[Any, Any], path: str) -> str:
    if len(sent) != len(got):
        return f"{path} has {len(sent)} entries, and arrives with {len(got)}"
    for key, value in sent.items():
        if key not in got:
            return f"{path} has the key {_shown(key)}, and arrives without it"
        if unlike := difference(value, got[key], f"{path}[{key!r}]"):
            return unlike
    return ""


def _same(sent: Any, got: Any) -> bool:
    if isinstance(sent, bool) is not isinstance(got, bool):
        return False
    if isinstance(sent, float) and isinstance(got, float) and math.isnan(sent):
        return math.isnan(got)
    if isinstance(sent, datetime) and isinstance(got, datetime) and sent.tzinfo and got.tzinfo:
        return _since_year_1(sent) == _since_year_1(got)
    if isinstance(sent, Decimal) and isinstance(got, Decimal) and not sent.is_finite():
        return str(sent) == str(got)
    try:
        return bool(sent == got)
    except Exception:  # noqa: BLE001  its `__eq__` is not ours
        return False


def _since_year_1(at: datetime) -> timedelta:
    """Return an aware datetime's time in UTC: `==` says no where a clock is set back, and
    `astimezone` refuses the first and last hours that there are."""
    return at.replace(tzinfo=None) - datetime.min - (at.utcoffset() or timedelta())


def _kind(got: Any) -> str:
    return "nothing" if got is _ABSENT else f"a {type(got).__qualname__}"


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else reprlib.repr(value)
