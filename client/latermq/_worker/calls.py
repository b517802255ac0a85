"""What is done with a delivery, or a batch: read payloads, call the function, say how it ended."""

import inspect
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, get_args, get_origin

from latermq._consuming.calling import (
    done_reader,
    failing_if_ended,
    in_thread,
    in_time,
    refuse_generator,
    result_is_due,
    result_of,
)
from latermq._consuming.surroundings import surrounded_by_django
from latermq._values.arguments import wrong
from latermq._worker.payload_types import annotation_of, called, name_of
from latermq._worker.payloads import CONTENT_TYPE, Codec, PayloadError, codec_for
from latermq._worker.verdicts import Judge, Rules
from latermq.delivery import Delivery, Outcome, Verdict
from latermq.message import ConsumeResult

log = logging.getLogger("latermq.worker")

Function = Callable[..., Any]
Result = ConsumeResult | None

POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class Shape(NamedTuple):
    """What a listener's function takes.

    Fields:
        codec: of its payload; None: it takes the delivery alone.
        with_delivery: it takes the delivery, first or after the payload.
        waits: it is a coroutine function; others are called in threads.
    """

    codec: Codec[Any] | None
    with_delivery: bool
    waits: bool


def shape_of(function: Function, *, batches: bool = False) -> Shape:
    """Read a listener's parameters: a payload, a `Delivery`, or a payload and a `Delivery`; of
    `batches`, lists of them.

    Raises:
        TypeError: it has others, or they are not annotated.
    """
    if not callable(function):
        raise wrong("a listener", "a function", function)
    refuse_generator(called(function))
    name = name_of(function)
    parameters = [each for each in inspect.signature(function).parameters.values() if _asked(each)]
    known = [annotation_of(function, each) for each in parameters]
    waits = inspect.iscoroutinefunction(called(function))
    takes = f"{name} must take a payload, a Delivery, or both in this order"
    if batches:
        takes = f"{name} must take a list of payloads, of Delivery, or both in this order"
        if any(get_origin(each) is not list for each in known if each is not None):
            raise TypeError(takes)
        known = [each and get_args(each)[0] for each in known]
    if not 1 <= len(parameters) <= 2 or any(each.kind not in POSITIONAL for each in parameters):
        raise TypeError(takes)
    if None in known:
        raise TypeError(f"{takes}, annotated: what is annotated decides how bodies are read")
    if len(known) == 2 and (known[1] is not Delivery or known[0] is Delivery):
        raise TypeError(takes)
    with_delivery = known[-1] is Delivery
    if with_delivery and not waits:
        raise TypeError(f"{name} takes a Delivery, whose verbs are awaited: make it `async def`")
    try:
        codec = None if known[0] is Delivery else codec_for(known[0])
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from error
    return Shape(codec, with_delivery, waits)


def _asked(parameter: inspect.Parameter) -> bool:
    """Tell whether a call has to give it: a partial has given those that its keywords name."""
    named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return not (named and parameter.default is not inspect.Parameter.empty)


class Call:
    """Calls one listener's function, for each delivery.

    Args:
        rules: what becomes of a delivery by the exception that is raised.
        timeout: after it a call is cancelled, and its attempt has failed.
        threads: where functions run that do not wait; used for those only.
    """

    def __init__(
        self,
        function: Function,
        shape: Shape,
        timeout: timedelta | None,
        threads: Executor | None,
        rules: Rules,
    ) -> None:
        self.name = name_of(function)
        self.judge = Judge(rules)
        self._function = function
        self._shape = shape
        self.result_due = result_is_due(called(function))
        self._done = done_reader(function)
        self._timeout_s = None if timeout is None else timeout.total_seconds()
        self._threads = threads

    async def __call__(self, delivery: Delivery) -> Result:
        """Treat a delivery as `App.listener` says; a bad payload is a dead letter."""
        try:
            payload = self._payload(delivery)
        except PayloadError as error:
            await _refuse(delivery, error)
            return None
        result: Result = await self._in_time(self._arguments(payload, delivery))
        self.judge.succeeded()
        return result

    async def batch(self, deliveries: Sequence[Delivery]) -> int:
        """Treat several at a time; a bad payload is a dead letter, and not in the list.

        Returns:
            how many are done, from the first.
        """
        fit: list[Delivery] = []
        payloads: list[Any] = []
        for delivery in deliveries:
            try:
                payloads.append(self._payload(delivery))
            except PayloadError as error:
                await _refuse(delivery, error)
            else:
                fit.append(delivery)
        if not fit:
            return len(deliveries)
        result = await self._in_time(self._arguments(payloads, fit))
        done = self._done(result, len(fit))
        self.judge.succeeded()
        return len(deliveries) if done == len(fit) else deliveries.index(fit[done])

    async def _in_time(self, given: tuple[Any, ...]) -> Any:
        return await in_time(self._timeout_s, failing_if_ended(self._run(given)))

    def _payload(self, delivery: Delivery) -> Any:
        codec = self._shape.codec
        if codec is None:
            return None
        return codec.read(delivery.body, delivery.properties.get(CONTENT_TYPE))

    def _arguments(self, payload: Any, delivery: Any) -> tuple[Any, ...]:
        """Return what the function is called with: of one, or of a batch in lists."""
        if self._shape.codec is None:
            return (delivery,)
        return (payload, delivery) if self._shape.with_delivery else (payload,)

    async def _run(self, given: tuple[Any, ...]) -> Any:
        if self._shape.waits:
            return await result_of(await surrounded_by_django(partial(self._function, *given)))
        return await in_thread(self._threads, self._function, *given)


async def _refuse(delivery: Delivery, error: PayloadError) -> None:
    log.warning(
        "dead letter: message %s of topic %s: %s", delivery.message_id, delivery.topic, error
    )
    delivery._verdict = Verdict(Outcome.DEAD_LETTERED)
    await delivery._settler.end(delivery, error)  # it insists: the others of its batch go on
