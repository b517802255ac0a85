"""The shipped alert rules, their times cut short: a day that goes by SPEED times as fast.

Nothing else of a rule changes. What waits for a time to pass does so in one of three ways: `for:`,
the window of a range, and the age of a message, which is a bound in seconds. A slow machine has a
slower day, in which it may be as much later with what it does.
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from support.machine import patience, patient

ROOT: Final = Path(__file__).resolve().parents[2]
SHIPPED: Final = ROOT / "broker/latermq_broker/config/operating/latermq.rules.yml"
SPEED: Final = 30 / patience()
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600}
_DURATION: Final = re.compile(r"(\d+)([smh])")
_WINDOW: Final = re.compile(r"(?<=\[)\d+[smh](?=\])|(?<=offset )\d+[smh]")
_AHEAD: Final = re.compile(r"(\d+) \* 3600")  # of predict_linear
_AGE: Final = re.compile(r"(?<=[<>] )(600|900|3600)$", re.MULTILINE)  # seconds since an event
_LATE: Final = re.compile(r"(?<=> )(0\.25|0\.5|5)$")  # by which a loop or a disk is late


def seconds(duration: str) -> int:
    match = _DURATION.fullmatch(duration)
    assert match is not None, duration
    return int(match[1]) * _UNIT_S[match[2]]


def cut(duration: str) -> str:
    """Return a duration of the rules as it lasts on the fast day."""
    return f"{seconds(duration) * 1_000 / SPEED:.0f}ms"


def hurried(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule as it is for the fast day."""
    expr = _AGE.sub(lambda age: f"{int(age[1]) / SPEED:g}", rule["expr"].strip())
    expr = _LATE.sub(lambda late: f"{patient(float(late[0])):g}", expr)
    expr = _WINDOW.sub(lambda window: cut(window[0]), expr)
    expr = _AHEAD.sub(lambda ahead: f"{int(ahead[1]) * 3_600 / SPEED:.0f}", expr)
    waits = {"for": cut(rule["for"])} if "for" in rule else {}
    return {**rule, "expr": expr, **waits}


def write_hurried(path: Path) -> None:
    loaded = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    for group in loaded["groups"]:
        group["rules"] = [hurried(rule) for rule in group["rules"]]
    path.write_text(yaml.safe_dump(loaded, sort_keys=False), encoding="utf-8")
