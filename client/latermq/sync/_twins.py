"""What the objects for threads say of their methods: what those of `latermq` say."""

from collections.abc import Callable
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)


def like(twin: type) -> Callable[[Kind], Kind]:
    """Give the methods of a class that have no docstring the one of `twin`'s of the same name."""

    def documented(kind: Kind) -> Kind:
        for name, member in vars(kind).items():
            if not name.startswith("_") and not member.__doc__:
                member.__doc__ = getattr(twin, name).__doc__
        return kind

    return documented
