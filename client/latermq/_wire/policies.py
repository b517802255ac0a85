"""A group's backoff ↔ latermq.v1.Backoff."""

from datetime import timedelta
from typing import Final

from latermq.backoff import Backoff, Exponential, Fixed, Ladder
from latermq_proto.latermq.v1 import group_pb2

_MS: Final = timedelta(milliseconds=1)


def backoff_message(backoff: Backoff) -> group_pb2.Backoff:
    """Return the backoff as a broker is told it."""
    message = group_pb2.Backoff(jitter=backoff.jitter)
    match backoff.waits:
        case Ladder(waits):
            message.ladder.delays_ms.extend(wait // _MS for wait in waits)
        case Exponential(initial=initial, limit=limit, multiplier=multiplier):
            message.exponential.initial_ms = initial // _MS
            message.exponential.max_ms = limit // _MS
            message.exponential.multiplier = multiplier
        case Fixed(each):
            message.fixed_ms = each // _MS
    return message


def read_backoff(message: group_pb2.Backoff) -> Backoff | None:
    """Return what a broker tells; None: nothing, so its own ladder holds."""
    kind = message.WhichOneof("policy")
    if kind == "ladder":
        waits = tuple(ms * _MS for ms in message.ladder.delays_ms)
        return Backoff.of(Ladder(waits), message.jitter)
    if kind == "exponential":
        policy = message.exponential
        initial, limit = policy.initial_ms * _MS, policy.max_ms * _MS
        growth = Exponential(initial=initial, limit=limit, multiplier=policy.multiplier)
        return Backoff.of(growth, message.jitter)
    if kind == "fixed_ms":
        return Backoff.of(Fixed(message.fixed_ms * _MS), message.jitter)
    return None
