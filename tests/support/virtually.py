"""Lets an `async def` test run in virtual time: what it waits for takes no time."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from support.virtual_loop import run_virtually

Arguments = ParamSpec("Arguments")


def virtually(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Run the test on a loop of its own whose clock jumps to whatever is due next."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_virtually(lambda: test(*args, **kwargs))

    return run
