"""Run one model until it fails, without shrinking; tell after how many examples.

python -m property.hunt property.test_engine_model:EngineMachine SEED EXAMPLES
"""

import logging
import re
import sys
import time
from collections.abc import Callable
from importlib import import_module
from traceback import extract_tb
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, reproduce_failure, settings
from hypothesis.control import current_build_context
from hypothesis.errors import DidNotReproduce
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

STEPS: int = 40
RECORD = re.compile(r"reproduce_failure\('([0-9.]+)', b['\"](.*?)['\"]\)")
FOR_EVER_S = float("inf")


class Hunted(NamedTuple):
    """`error` empty: the model held for all examples that were begun."""

    examples: int
    error: str = ""
    record: tuple[str, str] = ("", "")
    """Version of Hypothesis and its own record of the example, base64; empty: it wrote none."""


class _TimeOver(BaseException):
    """No Exception: Hypothesis would take it for a failure of the model."""


class _Time:
    """Counts the examples of a hunt, and ends it by `_TimeOver`, but not a failure's last run."""

    def __init__(self, until_s: float) -> None:
        self.examples = 0
        self.over = False
        self._until_s = until_s

    def begin(self) -> None:
        if current_build_context().is_final:
            return
        if time.monotonic() > self._until_s:
            self.over = True
            raise _TimeOver
        self.examples += 1


def hunt(
    machine: type[RuleBasedStateMachine],
    seed: int,
    examples: int,
    steps: int = STEPS,
    until_s: float = FOR_EVER_S,
) -> Hunted:
    """Run a machine for so many examples, or until the monotonic clock shows `until_s`."""
    spent = _Time(until_s)

    def counted() -> RuleBasedStateMachine:
        spent.begin()
        return machine()

    factory: Any = counted
    factory._hypothesis_internal_use_seed = seed
    factory.__name__ = machine.__name__
    how = _random(examples, steps)
    return _hunted(lambda: run_state_machine_as_test(factory, settings=how), spent)


def hunt_property(test: Any, seed: int, examples: int, until_s: float = FOR_EVER_S) -> Hunted:
    """Run a test made by `@given`, that takes no fixture, likewise."""
    spent = _Time(until_s)
    inner = test.hypothesis.inner_test

    def counted(*args: object, **kwargs: object) -> None:
        spent.begin()
        inner(*args, **kwargs)

    test._hypothesis_internal_use_seed = seed
    test._hypothesis_internal_use_settings = _random(examples, STEPS)
    test.hypothesis.inner_test = counted
    try:
        return _hunted(test, spent)
    finally:
        test.hypothesis.inner_test = inner


def repeat(model: Any, record: tuple[str, str]) -> str:
    """Run one recorded example of a machine or a property; return how it fails.

    Empty: it holds, or the record no longer fits.
    """
    is_machine = isinstance(model, type)
    again: Any = type(model.__name__, (model,), {}) if is_machine else model
    reproduce_failure(record[0], record[1].encode())(again)
    try:
        if is_machine:
            run_state_machine_as_test(again, settings=settings(deadline=None))
        else:
            again()
    except DidNotReproduce:
        return ""
    except Exception as error:  # noqa: BLE001  whatever it is, it was looked for
        return _words(error)
    finally:
        if not is_machine:
            del again._hypothesis_internal_use_reproduce_failure
    return ""


def _random(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def _hunted(run: Callable[[], None], spent: _Time) -> Hunted:
    try:
        run()
    except _TimeOver:
        return Hunted(spent.examples)
    except Exception as error:  # noqa: BLE001  whatever it is, it was looked for
        if spent.over:
            return Hunted(spent.examples)
        told = RECORD.search("\n".join(getattr(error, "__notes__", ())))
        record = (told[1], told[2]) if told else ("", "")
        return Hunted(spent.examples - 1, _words(error), record)
    return Hunted(spent.examples)


def _words(error: Exception) -> str:
    what = str(error) or extract_tb(error.__traceback__)[-1].line or ""
    return f"{type(error).__name__}: {what.splitlines()[0] if what else ''}"


def main() -> None:
    module, name = sys.argv[1].split(":")
    logging.disable()
    hunted = hunt(getattr(import_module(module), name), int(sys.argv[2]), int(sys.argv[3]))
    if hunted.error:
        print(f"example {hunted.examples} | {hunted.error}")
    else:
        print(f"not in {hunted.examples} examples | ")


if __name__ == "__main__":
    main()
