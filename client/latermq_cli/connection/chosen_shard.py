"""`--shard`: of a cluster, the one shard that a command is to ask."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_META: Final = "latermq.shard"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def shard_option(command: Decorated) -> Decorated:
    """Add `--shard`, which the command does not see: its connection goes to that shard."""

    def remember(context: click.Context, _: click.Parameter, number: int | None) -> None:
        context.meta[_META] = number

    return click.option(
        "--shard", type=click.IntRange(min=0), metavar="N", expose_value=False, callback=remember,
        hidden=True,
    )(command)  # fmt: skip


def chosen_shard() -> int | None:
    """Return the shard that the user named; None: all."""
    context = click.get_current_context(silent=True)
    number: int | None = None if context is None else context.meta.get(_META)
    return number
