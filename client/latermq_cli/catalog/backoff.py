"""`--backoff` as people write it ↔ latermq.v1.Backoff.

1s 5s 10s 1m          a ladder; the last step repeats
exponential 5s 2h 2   first wait, longest wait, factor (2 when left out)
fixed 10s
… jitter 20%          after any of them: each wait is drawn from ± 20 %
default               (alter only) back to the broker's ladder
"""

import re
from typing import Final

from latermq_proto.latermq.v1 import group_pb2
from latermq_text.durations import format_exact, parse_duration_ms

_JITTER: Final = re.compile(r"\s*\bjitter\s+(\d+(?:\.\d+)?)(%?)\s*$")
_HINT: Final = 'say "1s 5s 10s", "exponential 5s 2h 2" or "fixed 10s"'


def parse_backoff(text: str) -> group_pb2.Backoff:
    """The policy that `text` names.

    Raises:
        ValueError: with a sentence that says what is accepted.
    """
    backoff = group_pb2.Backoff()
    jitter = _JITTER.search(text)
    if jitter is not None:
        share = float(jitter[1]) / (100 if jitter[2] else 1)
        if share > 1:
            raise ValueError("jitter is a share from 0% to 100%")
        backoff.jitter = share
        text = text[: jitter.start()]
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError(f"a backoff is needed: {_HINT}")
    kind, *rest = words
    if kind == "exponential":
        _fill_exponential(backoff.exponential, rest)
    elif kind == "fixed":
        if len(rest) != 1:
            raise ValueError('say one wait, e.g. "fixed 10s"')
        backoff.fixed_ms = parse_duration_ms(rest[0])
    elif kind[0].isdigit():
        backoff.ladder.delays_ms.extend(parse_duration_ms(word) for word in words)
    else:
        raise ValueError(f"unknown backoff {kind!r}: {_HINT}")
    return backoff


def _fill_exponential(policy: group_pb2.Backoff.Exponential, words: list[str]) -> None:
    if len(words) not in (2, 3):
        raise ValueError(
            'say the first wait, the longest and the factor, e.g. "exponential 5s 2h 2"'
        )
    policy.initial_ms = parse_duration_ms(words[0])
    policy.max_ms = parse_duration_ms(words[1])
    try:
        policy.multiplier = float(words[2]) if len(words) == 3 else 2.0
    except ValueError:
        raise ValueError(f"{words[2]!r} is not a factor such as 2 or 1.5") from None


def format_backoff(backoff: group_pb2.Backoff) -> str:
    """The words that parse back to the same policy."""
    kind = backoff.WhichOneof("policy")
    if kind == "ladder":
        text = " ".join(format_exact(ms) for ms in backoff.ladder.delays_ms)
    elif kind == "exponential":
        policy = backoff.exponential
        waits = f"{format_exact(policy.initial_ms)} {format_exact(policy.max_ms)}"
        text = f"exponential {waits} {policy.multiplier:g}"
    elif kind == "fixed_ms":
        text = f"fixed {format_exact(backoff.fixed_ms)}"
    else:
        return ""
    return f"{text} jitter {backoff.jitter * 100:g}%" if backoff.jitter else text
