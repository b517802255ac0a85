"""The core's dead letters → latermq.v1 messages; filters the other way."""

from typing import Final

from latermq_broker.engine.state.model import Attempt, DeadFilter, DeadLetter, DeadState
from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.names import choice
from latermq_broker.services.wire.wire_stored import stored_message
from latermq_proto.latermq.v1 import dead_letter_pb2

OUTCOMES: Final = (
    "", "nack", "expired", "forwarded", "rejected", "suspended", "acknowledged", "client_gone",
)  # fmt: skip
FILTER_NAMES_MAX: Final = 10_000  # message ids or offsets in one filter


def letter_message(letter: DeadLetter, *, stacks: bool, body: bool) -> dead_letter_pb2.DeadLetter:
    """Show the whole letter; stacks and body only where asked for."""
    stored = stored_message(letter.rest, letter.sys)
    failure = letter.failure
    return dead_letter_pb2.DeadLetter(
        group=letter.group,
        queue_offset=letter.queue_offset,
        message_id=stored.message_id,
        origin_topic=letter.origin_topic,
        origin_queue_id=letter.origin_queue_id,
        origin_offset=letter.origin_offset,
        reason=letter.reason,
        attempt_count=letter.attempt_count,
        max_attempts=letter.max_attempts,
        first_failure_at_ms=letter.first_failure_ms,
        last_failure_at_ms=letter.last_failure_ms,
        dead_at_ms=letter.dead_ms,
        failure_class=failure.class_name if failure else "",
        failure_text=failure.text if failure else "",
        signature=letter.signature,
        tag=stored.tag,
        keys=stored.keys,
        message_group=stored.message_group,
        priority=stored.priority,
        lite_topic=stored.lite_topic,
        properties=stored.properties,
        body_size=len(stored.body),
        body=stored.body if body else b"",
        born_at_ms=stored.born_ms,
        born_host=stored.born_host,
        stored_at_ms=stored.stored_ms,
        state=dead_letter_pb2.DeadLetterState.Name(letter.state),
        redriven_at_ms=letter.redriven_ms,
        redrive_count=letter.redrive_count,
        attempts=[
            attempt_message(attempt, stacks=stacks)
            for attempt in (letter.life.whole if stacks else letter.life.short)
        ],
        body_encoding=stored.body_encoding,
        parks=letter.parks,
    )


def attempt_message(attempt: Attempt, *, stacks: bool) -> dead_letter_pb2.Attempt:
    failure = attempt.failure
    message = dead_letter_pb2.Attempt(
        attempt=attempt.attempt,
        started_at_ms=attempt.started_ms,
        ended_at_ms=attempt.ended_ms,
        client_id=attempt.client_id,
        outcome=OUTCOMES[attempt.outcome],
        backoff_ms=attempt.backoff_ms,
        life=attempt.life,
    )
    if failure is not None:
        message.failure_class = failure.class_name
        message.failure_text = failure.text
        message.stack_hash = failure.stack_hash
        if stacks:
            message.stack = failure.stack
    return message


def dead_filter(message: dead_letter_pb2.DeadLetterFilter) -> DeadFilter:
    """Read which letters are meant.

    Raises:
        BadRequestError: an unknown state, or too many ids or offsets.
    """
    for what in (message.message_ids, message.queue_offsets):
        if len(what) > FILTER_NAMES_MAX:
            raise BadRequestError(
                f"the filter names {len(what)} letters, at most {FILTER_NAMES_MAX} are allowed"
            )
    return DeadFilter(
        message_ids=frozenset(message.message_ids),
        queue_offsets=frozenset(message.queue_offsets),
        signature=message.signature,
        failure_class=message.failure_class,
        origin_topic=message.origin_topic,
        reason=message.reason,
        dead_after_ms=message.dead_after_ms,
        dead_before_ms=message.dead_before_ms,
        state=_state(message.state),
    )


def _state(number: int) -> DeadState | None:
    """Read the state to list; None for ANY."""
    if number == dead_letter_pb2.ANY:
        return None
    return choice(DeadState, number, "dead letter state") or DeadState.DEAD
