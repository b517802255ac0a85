"""Run one state machine until it fails, without shrinking; tell after how many examples.

python -m property.hunt property.test_engine_model:EngineMachine SEED EXAMPLES
"""

import logging
import sys
from importlib import import_module
from traceback import extract_tb
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def hunt(machine: type[RuleBasedStateMachine], seed: int, examples: int) -> str:
    begun = 0

    def counted() -> RuleBasedStateMachine:
        nonlocal begun
        begun += 1
        return machine()

    counted._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    counted.__name__ = machine.__name__
    factory: Any = counted
    try:
        run_state_machine_as_test(
            factory,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            ),
        )
    except Exception as error:  # noqa: BLE001  whatever it is, it was looked for
        what = str(error) or extract_tb(error.__traceback__)[-1].line or ""
        return f"example {begun - 1} | {type(error).__name__}: {what.splitlines()[0]}"
    return f"not in {begun} examples | "


def main() -> None:
    module, name = sys.argv[1].split(":")
    logging.disable()
    print(hunt(getattr(import_module(module), name), int(sys.argv[2]), int(sys.argv[3])))


if __name__ == "__main__":
    main()
