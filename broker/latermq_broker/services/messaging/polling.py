"""How long a receive or a pull may wait for its first message."""

from typing import Final

from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import BadRequestError, IllegalPollingTimeError
from latermq_broker.services.call.answers import Caller
from latermq_broker.services.clients.client_quirks import Quirk, quirks_of
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.wire import wire
from latermq_proto.google.protobuf import duration_pb2

REQUEST_TIMEOUT_MS: Final = 3_000  # of every official client, unless its settings say otherwise


def polling_ms(
    asked: duration_pb2.Duration | None,
    caller: Caller,
    sessions: Sessions,
    config: ServerConfig,
    *,
    short: bool,
) -> int:
    """Find how many milliseconds to wait at most; 0: answer now.

    A wait that was not asked for is guessed from the deadline, as RocketMQ does: what remains of
    it, less half a request timeout. The answer leaves `polling_margin_ms` before the deadline.

    Args:
        asked: the request's long_polling_timeout, None when it is not set.
        short: whether one below `polling_ms_min` is kept.

    Raises:
        IllegalPollingTimeError: longer than the deadline, and that is near.
        BadRequestError: the same, for clients that do not know the code.
    """
    remaining_ms = caller.call.remaining_ms()
    least_ms = config.polling_ms_min
    if asked is not None:
        wait_ms = wire.duration_ms(asked)
        if short:
            least_ms = 0
    elif remaining_ms is not None:
        wait_ms = remaining_ms - _request_timeout_ms(caller.client_id, sessions) // 2
    else:
        wait_ms = config.polling_ms_max
    wait_ms = min(max(wait_ms, least_ms), config.polling_ms_max)
    if remaining_ms is None:
        return wait_ms
    if wait_ms > remaining_ms and remaining_ms < config.polling_ms_min:
        raise _too_long(wait_ms, remaining_ms, caller)
    return max(min(wait_ms, remaining_ms - config.polling_margin_ms), 0)


def _request_timeout_ms(client_id: str, sessions: Sessions) -> int:
    session = sessions.get(client_id)
    if session is None or not session.settings.HasField("request_timeout"):
        return REQUEST_TIMEOUT_MS
    return wire.duration_ms(session.settings.request_timeout)


def _too_long(
    wait_ms: int, remaining_ms: int, caller: Caller
) -> IllegalPollingTimeError | BadRequestError:
    text = f"long polling for {wait_ms} ms does not fit the deadline {remaining_ms} ms from now"
    language = caller.call.metadata("x-mq-language") or ""
    version = caller.call.metadata("x-mq-client-version") or ""
    if Quirk.OLD_POLLING_CODE in quirks_of(language, version):
        return BadRequestError(text)
    return IllegalPollingTimeError(text)
