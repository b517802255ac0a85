"""Changes of what waits, in whichever shard it does: an id that a cluster lists names its shard."""

import re
from collections.abc import Iterable
from typing import Any, Final

from latermq.admin import Method
from latermq_cli.connection.shards import NAMED, Shards
from latermq_cli.terminal.failures import OK, RefusedError
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import pending_pb2

_PENDING_ID: Final = re.compile(r"[a-z]-[0-9a-f]+(-[0-9a-f]+)*")
_NOT_THERE: Final = range(40400, 40500)


def change(shards: Shards, method: Method[Any], request: Any) -> Any:
    """Return the results of a change, in the order of the request's ids.

    Raises:
        RefusedError: an id without its shard, where there are several.
    """
    named = [_parsed(given) for given in request.ids]
    if not shards.several:
        request.ids[:] = [own for own, _ in named]
        ((_, answer),) = shards.each(lambda broker: broker.call(method, request))
        return answer
    for own, shard in named:
        if shard is None and _PENDING_ID.fullmatch(own):
            raise RefusedError(f"{own} may be in several shards: say {own}@N, as it is listed")
    results: dict[int, Any] = {}
    shards.each(lambda broker: _change_in(shards.number(broker), broker, method, request, named,
                                          results))  # fmt: skip
    answer = pending_pb2.ChangePendingResponse()
    silent = "; ".join(shards.silent())
    for place, (own, shard) in enumerate(named):
        result = results.get(place)
        absent = result is None or (shard is None and result.status.code in _NOT_THERE)
        if result is None or (absent and silent):
            result = pending_pb2.ChangePendingResult(id=own)
            result.status.code = definition_pb2.MESSAGE_NOT_FOUND
            result.status.message = f"no shard has {own}"
            if silent:
                result.status.code = definition_pb2.INTERNAL_ERROR
                result.status.message = f"no shard that answers has {own}; {silent}"
        answer.results.append(result)
    return answer


def _change_in(
    shard: int,
    broker: Any,
    method: Method[Any],
    request: Any,
    named: Iterable[tuple[str, int | None]],
    results: dict[int, Any],
) -> None:
    """Change what may be in one shard; a message id is looked for in each."""
    places = {
        place: own for place, (own, of_shard) in enumerate(named) if of_shard in (None, shard)
    }
    if not places:
        return
    asked = type(request)()
    asked.CopyFrom(request)
    asked.ids[:] = places.values()
    for place, result in zip(places, broker.call(method, asked).results, strict=True):
        known = results.get(place)
        if known is None or known.status.code in _NOT_THERE or result.status.code == OK:
            results[place] = result


def _parsed(given: str) -> tuple[str, int | None]:
    match = NAMED.fullmatch(given)
    return (given, None) if match is None else (match[1], int(match[2]))
